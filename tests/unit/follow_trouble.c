#include "follow/trouble.h"
#include "tests/support/any/stderr_pipe.h"

#include <criterion/criterion.h>

TestSuite(follow_trouble, .init = stderr_pipe);

Test(follow_trouble, a_trouble_is_told_once_and_so_is_its_end)
{
	struct trouble trouble = {0};

	log_begin("gpuwm-follow");
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
