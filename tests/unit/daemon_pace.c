/* Token buckets by user and kind. */
#include "daemon/base/pace.h"
#include "tests/support/fail_alloc.h"

#include <criterion/criterion.h>

static struct pace *pace;
static const struct pace_rate rate = {.burst = 3, .per_second = 2};

static void setup(void)
{
	pace = pace_new(true);
	cr_assert(pace);
}

static void teardown(void)
{
	cr_assert_null(pace_free(pace));
}

TestSuite(pace, .init = setup, .fini = teardown);

static unsigned taken(uid_t uid, unsigned kind, uint64_t now_ms, unsigned tries)
{
	unsigned count = 0;

	for (unsigned i = 0; i < tries; i++)
		count += pace_take(pace, uid, kind, rate, now_ms);
	return count;
}

Test(pace, a_burst_is_taken_at_once)
{
	cr_expect_eq(taken(1, 0, 1000, 10), 3);
}

Test(pace, then_so_many_a_second)
{
	taken(1, 0, 1000, 3);
	cr_expect_eq(taken(1, 0, 1499, 5), 0);
	cr_expect_eq(taken(1, 0, 1500, 5), 1);
	cr_expect_eq(taken(1, 0, 2500, 5), 2);
	cr_expect_eq(taken(1, 0, 3600000, 10), 3, "never more than the burst");
}

Test(pace, users_and_kinds_have_their_own)
{
	taken(1, 0, 1000, 5);
	cr_expect_eq(taken(2, 0, 1000, 5), 3);
	cr_expect_eq(taken(1, 1, 1000, 5), 3);
}

Test(pace, what_was_withheld_is_counted_once)
{
	unsigned kind = 9;
	uid_t uid = 0;

	taken(1, 0, 1000, 3);
	cr_expect_not(pace_next_withheld(pace, &uid, &kind));
	taken(7, 4, 1000, 8);
	cr_assert(pace_next_withheld(pace, &uid, &kind));
	cr_expect(uid == 7 && kind == 4);
	cr_expect_eq(pace_withheld(pace, 7, 4), 5);
	cr_expect_eq(pace_withheld(pace, 7, 4), 0);
	cr_expect_eq(pace_withheld(pace, 8, 4), 0, "of somebody who was never there");
	cr_expect_not(pace_next_withheld(pace, &uid, &kind));
}

Test(pace, what_was_withheld_is_not_forgotten)
{
	taken(1, 0, 1000, 10);
	for (uid_t uid = 2; uid < 20; uid++)
		taken(uid, 0, 1000000, 1);
	cr_expect_eq(pace_withheld(pace, 1, 0), 7);
}

Test(pace, a_table_that_counts_nothing_forgets_who_was_refused)
{
	pace_free(pace);
	pace = pace_new(false);
	taken(1, 0, 1000, 10);
	cr_expect_eq(pace_withheld(pace, 1, 0), 0);
	for (uid_t uid = 2; uid < 20; uid++)
		taken(uid, 0, 1000000, 1);
	cr_expect_eq(pace_count(pace), 18);
}

Test(pace, a_changed_rate_counts_at_once)
{
	const struct pace_rate more = {.burst = 5, .per_second = 2};

	taken(1, 0, 1000, 5);
	cr_expect(pace_take(pace, 1, 0, more, 1000));
}

Test(pace, who_was_there_long_ago_takes_no_memory)
{
	for (uid_t uid = 0; uid < 1000; uid++)
		taken(uid, 0, 1000, 3);
	for (uid_t uid = 5000; uid < 5500; uid++)
		taken(uid, 0, 100000, 3);
	cr_expect_eq(pace_count(pace), 500);
}

Test(pace, without_memory_nobody_is_held_up)
{
	bool took = true;

	for (unsigned n = 1; fail_alloc_arm(n), took &= pace_take(pace, n, 0, rate, 1000), fail_alloc_disarm();
	     n++)
		;
	cr_expect(took);
}
