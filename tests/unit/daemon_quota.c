#include "daemon/quota.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct quota *quota;
static struct error error;

static void open_quota(void)
{
	struct quota_limits limits = {.per_uid = {3, 2, 1, 0}};

	quota = quota_new(&limits);
	cr_assert(quota);
}

static void close_quota(void)
{
	quota = quota_free(quota);
	cr_expect_null(quota_free(NULL));
}

TestSuite(quota, .init = open_quota, .fini = close_quota);

Test(quota, is_counted_by_user_and_kind)
{
	struct quota_charge a, b, c;

	cr_assert_eq(quota_charge(quota, 1, QUOTA_LEASES, &a, &error), 0);
	cr_assert_eq(quota_charge(quota, 1, QUOTA_SESSIONS, &b, &error), 0);
	cr_assert_eq(quota_charge(quota, 2, QUOTA_LEASES, &c, &error), 0);
	cr_expect_eq(quota_used(quota, 1, QUOTA_LEASES), 1);
	cr_expect_eq(quota_used(quota, 1, QUOTA_SESSIONS), 1);
	cr_expect_eq(quota_used(quota, 1, QUOTA_REQUESTS), 0);
	cr_expect_eq(quota_used(quota, 2, QUOTA_LEASES), 1);
	cr_expect_eq(quota_used(quota, 3, QUOTA_LEASES), 0);
	quota_release(&a);
	cr_expect_eq(quota_used(quota, 1, QUOTA_LEASES), 0);
	cr_expect_eq(quota_used(quota, 2, QUOTA_LEASES), 1);
	quota_release(&b);
	quota_release(&c);
}

Test(quota, ends_at_the_limit_and_comes_back)
{
	struct quota_charge first, second, third = {0};

	quota_charge(quota, 7, QUOTA_LEASES, &first, &error);
	quota_charge(quota, 7, QUOTA_LEASES, &second, &error);
	cr_expect_eq(quota_charge(quota, 7, QUOTA_LEASES, &third, &error), -EDQUOT);
	cr_expect_null(third.user);
	cr_expect_eq(quota_used(quota, 7, QUOTA_LEASES), 2);
	quota_release(&first);
	cr_expect_eq(quota_charge(quota, 7, QUOTA_LEASES, &third, &error), 0);
	quota_release(&second);
	quota_release(&third);
}

Test(quota, refusal_names_the_limit_its_figure_and_its_key)
{
	struct quota_charge charge;

	quota_charge(quota, 7, QUOTA_REQUESTS, &charge, &error);
	cr_assert_eq(quota_charge(quota, 7, QUOTA_REQUESTS, &(struct quota_charge){0}, &error), -EDQUOT);
	cr_expect(strstr(error.message, "uid 7 has all 1 waiting requests"), "%s", error.message);
	cr_expect(strstr(error.detail, "requests_per_uid in [limits]"), "%s", error.detail);
	quota_release(&charge);
}

Test(quota, of_zero_refuses_an_unknown_user_and_keeps_nothing)
{
	cr_expect_eq(quota_charge(quota, 9, QUOTA_PUBLISHES, &(struct quota_charge){0}, &error), -EDQUOT);
	cr_expect_eq(quota_used(quota, 9, QUOTA_PUBLISHES), 0);
}

Test(quota, is_given_back_once)
{
	struct quota_charge first, second, none = {0};

	quota_charge(quota, 7, QUOTA_LEASES, &first, &error);
	quota_charge(quota, 7, QUOTA_LEASES, &second, &error);
	quota_release(&first);
	quota_release(&first);
	quota_release(&none);
	cr_expect_eq(quota_used(quota, 7, QUOTA_LEASES), 1);
	quota_release(&second);
}

/* A thousand users, all forgotten again: the sanitizer sees what stays. */
Test(quota, forgets_users_without_charges)
{
	static struct quota_charge charges[1000];

	for (unsigned i = 0; i < 1000; i++)
		cr_assert_eq(quota_charge(quota, i, QUOTA_SESSIONS, &charges[i], &error), 0);
	for (unsigned i = 0; i < 1000; i++)
		quota_release(&charges[i]);
	for (unsigned i = 0; i < 1000; i++)
		cr_assert_eq(quota_used(quota, i, QUOTA_SESSIONS), 0);
}

Test(quota, table_frees_what_is_still_charged)
{
	struct quota_charge charge;

	quota_charge(quota, 1, QUOTA_LEASES, &charge, &error);
	quota_charge(quota, 2, QUOTA_LEASES, &charge, &error);
}
