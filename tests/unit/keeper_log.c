#include "keeper/keeper.h"

#include <criterion/criterion.h>

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
