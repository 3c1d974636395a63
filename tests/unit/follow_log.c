/* What gpuwm-follow logs, and when it says nothing. */
#include "follow/log.h"
#include "tests/support/any/stderr_pipe.h"

#include <criterion/criterion.h>

TestSuite(follow_log, .init = stderr_pipe);

Test(follow_log, a_trouble_is_told_once_and_so_is_its_end)
{
	struct trouble trouble = {0};

	log_trouble_over(&trouble, "nothing was wrong");
	log_trouble(&trouble, "no answer");
	log_trouble(&trouble, "no answer");
	log_passing(&trouble, "a moment");
	log_trouble_over(&trouble, "it answers again");
	log_trouble(&trouble, "no answer");
	cr_expect_str_eq(stderr_written(),
			 "gpuwm-follow: warning: no answer\ngpuwm-follow: info: a moment\n"
			 "gpuwm-follow: info: it answers again\ngpuwm-follow: warning: no answer\n");
}

/* Blocking here would hang the test. */
Test(follow_log, a_pipe_that_nobody_reads_stops_nothing, .timeout = 120)
{
	stderr_fill();
	log_info("nobody reads this");
}
