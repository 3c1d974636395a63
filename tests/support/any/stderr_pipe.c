#include "stderr_pipe.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int fds[2];
static char text[1 << 17]; /* more than a pipe takes */

void stderr_pipe(void)
{
	cr_assert_eq(pipe(fds), 0);
	cr_assert_eq(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
	unsetenv("JOURNAL_STREAM");
}

static ssize_t read_all(void)
{
	ssize_t bytes = read(fds[0], text, sizeof(text) - 1);

	cr_assert_gt(bytes, 0);
	return bytes;
}

const char *stderr_read(void)
{
	text[read_all()] = '\0';
	return text;
}

const char *stderr_written(void)
{
	/* A mark that is always there makes the read end. */
	cr_assert_eq(write(STDERR_FILENO, "#", 1), 1);
	text[read_all() - 1] = '\0';
	return text;
}

void stderr_fill(void)
{
	int flags = fcntl(STDERR_FILENO, F_GETFL);

	fcntl(STDERR_FILENO, F_SETFL, flags | O_NONBLOCK);
	while (write(STDERR_FILENO, text, sizeof(text)) > 0)
		;
	fcntl(STDERR_FILENO, F_SETFL, flags);
}

void stderr_end(void)
{
	close(fds[0]);
	close(STDERR_FILENO);
}
