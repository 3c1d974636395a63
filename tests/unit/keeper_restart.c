#include "keeper/child.h"

#include <criterion/criterion.h>

Test(keeper_restart, at_once_then_growing_up_to_the_longest_for_ever)
{
	static const uint64_t expected[] = {0, 100, 200, 400, 800, 1600, 3200, 5000, 5000};
	struct restart restart = {.max_ms = 5000};

	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
		cr_expect_eq(restart_delay(&restart, 0), expected[i], "%zu", i);
	for (int i = 0; i < 100000; i++)
		cr_expect_eq(restart_delay(&restart, 4999), 5000);
}

Test(keeper_restart, a_good_run_begins_anew)
{
	struct restart restart = {.max_ms = 5000};

	for (int i = 0; i < 10; i++)
		restart_delay(&restart, 0);
	cr_expect_eq(restart_delay(&restart, 5000), 5000, "ready for as long is not enough");
	cr_expect_eq(restart_delay(&restart, 5001), 0);
	cr_expect_eq(restart_delay(&restart, 0), 100);
	restart_reset(&restart);
	cr_expect_eq(restart_delay(&restart, 0), 0);
}

Test(keeper_restart, a_short_longest_delay_is_kept)
{
	struct restart restart = {.max_ms = 50}, none = {.max_ms = 0};

	cr_expect_eq(restart_delay(&restart, 0), 0);
	cr_expect_eq(restart_delay(&restart, 0), 50);
	cr_expect_eq(restart_delay(&restart, 0), 50);
	for (int i = 0; i < 3; i++)
		cr_expect_eq(restart_delay(&none, 0), 0);
}
