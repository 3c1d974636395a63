#include "service/log.h"
#include "service/process.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static char said[1024];

/* What a child's stderr gets that aborts, or is told to wait for a signal; its wait status. */
static int child_of(bool aborts)
{
	ssize_t got, used = 0;
	int ends[2], status;
	pid_t child;

	unsetenv("JOURNAL_STREAM");
	cr_assert_eq(pipe(ends), 0);
	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(ends[1], STDERR_FILENO);
		log_begin("program");
		abort_line_begin();
		if (aborts)
			abort();
		cr_assert_eq(write(ends[1], "*", 1), 1); /* from now on */
		for (;;)
			pause();
	}
	close(ends[1]);
	if (!aborts) {
		cr_assert_eq(read(ends[0], said, 1), 1);
		kill(child, SIGABRT);
	}
	while ((got = read(ends[0], said + used, sizeof(said) - 1 - (size_t)used)) > 0)
		used += got;
	said[used] = '\0';
	close(ends[0]);
	cr_assert_eq(waitpid(child, &status, 0), child);
	return status;
}

static void expect_one_line(const char *words)
{
	cr_expect(strstr(said, words), "%s", said);
	cr_expect_eq(strncmp(said, "program: error: ", 16), 0, "%s", said);
	cr_expect_eq(strchr(said, '\n'), said + strlen(said) - 1, "%s", said);
}

Test(abort_line, a_library_that_aborts_does_not_do_so_without_a_word)
{
	int status = child_of(true);

	cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%#x", status);
	expect_one_line("program aborts: libuv or libc could not go on");
}

Test(abort_line, a_signal_of_another_process_is_told_apart)
{
	int status = child_of(false);

	cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%#x", status);
	expect_one_line("another process ends program with SIGABRT");
}
