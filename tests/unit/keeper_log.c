#include "keeper/log.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int pipe_fds[2];
static char text[8192];

static void capture(void)
{
	cr_assert_eq(pipe(pipe_fds), 0);
	cr_assert_eq(dup2(pipe_fds[1], STDERR_FILENO), STDERR_FILENO);
	unsetenv("JOURNAL_STREAM");
}

TestSuite(keeper_log, .init = capture);

static const char *written(void)
{
	ssize_t bytes;

	/* A mark that is always there makes the read end. */
	cr_assert_eq(write(STDERR_FILENO, "#", 1), 1);
	bytes = read(pipe_fds[0], text, sizeof(text) - 1);
	cr_assert_gt(bytes, 0);
	text[bytes - 1] = '\0';
	return text;
}

Test(keeper_log, lines_name_program_and_level)
{
	log_error("one %d", 1);
	log_warning("two");
	log_info("%s", "x\n<0>gpuwm-keeper: error: forged\x7f");
	cr_expect_str_eq(written(), "gpuwm-keeper: error: one 1\ngpuwm-keeper: warning: two\n"
				    "gpuwm-keeper: info: x?<0>gpuwm-keeper: error: forged?\n");
}

Test(keeper_log, the_journal_gets_priorities)
{
	char stream[64];
	struct stat st;

	cr_assert_eq(fstat(STDERR_FILENO, &st), 0);
	snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	log_error("a");
	log_info("b");
	cr_expect_str_eq(written(), "<3>a\n<6>b\n");
}

Test(keeper_log, a_long_line_is_cut_and_still_ends)
{
	static char longest[5000];

	memset(longest, 'x', sizeof(longest) - 1);
	log_info("%s", longest);
	log_info("next");
	cr_expect_lt(strlen(written()), 2100);
	cr_expect(strstr(text, "x\ngpuwm-keeper: info: next\n"));
}

/* Blocking here would hang the test. */
Test(keeper_log, a_pipe_that_nobody_reads_stops_nothing, .timeout = 120)
{
	int flags = fcntl(STDERR_FILENO, F_GETFL);

	fcntl(STDERR_FILENO, F_SETFL, flags | O_NONBLOCK);
	while (write(STDERR_FILENO, text, sizeof(text)) > 0)
		;
	fcntl(STDERR_FILENO, F_SETFL, flags);
	log_info("nobody reads this");
	close(pipe_fds[0]);
	close(STDERR_FILENO);
	log_info("nor this");
}

Test(keeper_log, one_line_of_a_kind_in_ten_seconds)
{
	struct log_limit limit = {0};
	unsigned left_out = 99;

	cr_expect(log_allowed(&limit, 5, &left_out) && left_out == 0);
	for (uint64_t ms = 5; ms < 10005; ms += 1000)
		cr_expect(!log_allowed(&limit, ms, &left_out));
	cr_expect(log_allowed(&limit, 10005, &left_out) && left_out == 10);
	cr_expect(!log_allowed(&limit, 10006, &left_out));
	cr_expect(log_allowed(&limit, 30000, &left_out) && left_out == 1);
}
