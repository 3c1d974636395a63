#include "caught.h"

#include "service/log.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int stderr_before, log_pipe[2];

void log_catch(void)
{
	fflush(stderr);
	stderr_before = dup(STDERR_FILENO);
	cr_assert_eq(pipe2(log_pipe, O_NONBLOCK), 0);
	dup2(log_pipe[1], STDERR_FILENO);
	close(log_pipe[1]);
	log_begin("gpuwmd");
	log_level_set(LOG_LEVEL_INFO);
}

const char *log_caught(void)
{
	static char text[65536];
	ssize_t n;

	dup2(stderr_before, STDERR_FILENO);
	close(stderr_before);
	n = read(log_pipe[0], text, sizeof(text) - 1);
	close(log_pipe[0]);
	text[n > 0 ? n : 0] = '\0';
	return text;
}
