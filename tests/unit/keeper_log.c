#include "keeper/log.h"
#include "tests/support/any/stderr_pipe.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(keeper_log, .init = stderr_pipe);

Test(keeper_log, lines_name_program_and_level)
{
	log_error("one %d", 1);
	log_warning("two");
	log_info("%s", "x\n<0>gpuwm-keeper: error: forged\x7f");
	cr_expect_str_eq(stderr_written(), "gpuwm-keeper: error: one 1\ngpuwm-keeper: warning: two\n"
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
	cr_expect_str_eq(stderr_written(), "<3>a\n<6>b\n");
}

Test(keeper_log, a_long_line_is_cut_and_still_ends)
{
	static char longest[5000];
	const char *text;

	memset(longest, 'x', sizeof(longest) - 1);
	log_info("%s", longest);
	log_info("next");
	text = stderr_written();
	cr_expect_lt(strlen(text), 2100);
	cr_expect(strstr(text, "x\ngpuwm-keeper: info: next\n"));
}

/* Blocking here would hang the test. */
Test(keeper_log, a_pipe_that_nobody_reads_stops_nothing, .timeout = 120)
{
	stderr_fill();
	log_info("nobody reads this");
	stderr_end();
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
