#include "daemon/base/quota.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "proto/wire/messages.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
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

static void two_versions(void *data, uid_t uid, struct quota_coming *ret)
{
	const uint64_t *in_ms = data;

	if (uid == 7)
		*ret = (struct quota_coming){.versions = 2, .in_ms = *in_ms, .amounts[QUOTA_REQUESTS] = 5};
}

Test(quota, refusal_says_what_comes_back_by_itself)
{
	uint64_t in_ms = 4045;

	quota_set_coming(quota, two_versions, &in_ms);
	cr_assert_eq(quota_charge_amount(quota, 7, QUOTA_REQUESTS, 2, &(struct quota_charge){0}, &error),
		     -EDQUOT);
	cr_expect(strstr(error.detail, "2 versions of uid 7 are freed 4045 ms from now, which gives 5 waiting "
				       "requests back (in the grace time"),
		  "%s", error.detail);
	in_ms = 0;
	cr_assert_eq(quota_charge_amount(quota, 7, QUOTA_REQUESTS, 2, &(struct quota_charge){0}, &error),
		     -EDQUOT);
	cr_expect(strstr(error.detail, "are being freed, which gives 5 waiting requests back"), "%s",
		  error.detail);
	cr_expect_null(strstr(error.detail, "grace"), "%s", error.detail);
	cr_assert_eq(quota_charge_amount(quota, 7, QUOTA_LEASES, 9, &(struct quota_charge){0}, &error),
		     -EDQUOT);
	cr_expect_null(strstr(error.detail, "wait"), "%s", error.detail);
	cr_assert_eq(quota_charge_amount(quota, 8, QUOTA_REQUESTS, 2, &(struct quota_charge){0}, &error),
		     -EDQUOT);
	cr_expect_null(strstr(error.detail, "wait"), "%s", error.detail);
}

Test(quota, comes_if_all_that_a_user_lacks_comes_back)
{
	uint64_t needs[QUOTA_KINDS] = {[QUOTA_REQUESTS] = 1}, in_ms = 0;
	struct quota_charge held;

	quota_set_coming(quota, two_versions, &in_ms);
	cr_expect_not(quota_comes(quota, 7, needs), "it lacks nothing");
	cr_assert_eq(quota_charge(quota, 7, QUOTA_REQUESTS, &held, &error), 0);
	cr_expect(quota_comes(quota, 7, needs));
	needs[QUOTA_REQUESTS] = 2;
	cr_expect_not(quota_comes(quota, 7, needs), "more than the limit");
	needs[QUOTA_REQUESTS] = 1;
	needs[QUOTA_PUBLISHES] = 1;
	cr_expect_not(quota_comes(quota, 7, needs), "this one stays away");
	quota_release(&held);
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

Test(quota, amounts_are_charged_grow_and_shrink)
{
	struct quota_limits limits = {.per_uid = {[QUOTA_BYTES] = 100}};
	struct quota_charge charge = {0}, other = {0}, nobodys = {0};

	quota_set_limits(quota, &limits);
	cr_assert_eq(quota_charge_amount(quota, 5, QUOTA_BYTES, 60, &charge, &error), 0);
	cr_expect_eq(quota_charge_amount(quota, 5, QUOTA_BYTES, 41, &other, &error), -EDQUOT);
	cr_expect_str_eq(error.message, "uid 5 may have 100 B of memory; it has 60 B and asks for 41 B more");
	cr_expect(strstr(error.detail, "bytes_per_uid in [limits]"), "%s", error.detail);
	cr_expect_eq(quota_charge_amount(quota, 5, QUOTA_BYTES, UINT64_MAX, &other, &error), -EDQUOT);
	cr_expect_eq(quota_grow(&charge, 41, &error), -EDQUOT);
	cr_expect_eq(quota_used(quota, 5, QUOTA_BYTES), 60);
	cr_expect_eq(quota_grow(&charge, 40, &error), 0);
	cr_expect_eq(quota_used(quota, 5, QUOTA_BYTES), 100);
	quota_shrink(&charge, 200);
	cr_expect_eq(quota_used(quota, 5, QUOTA_BYTES), 100, "it only shrinks");
	quota_shrink(&charge, 10);
	cr_expect_eq(quota_used(quota, 5, QUOTA_BYTES), 10);
	quota_release(&charge);
	quota_release(&charge);
	cr_expect_null(quota_next_user(quota, NULL));
	cr_expect_eq(quota_grow(&nobodys, 1000, &error), 0, "nobody is charged");
	quota_shrink(&nobodys, 0);
}

Test(quota, what_was_held_before_a_restart_is_charged_above_the_limit)
{
	struct quota_charge held = {0}, more = {0};
	const struct quota_user *user;

	cr_assert_eq(quota_adopt(quota, 5, QUOTA_LEASES, 7, &held, &error), 0);
	cr_expect_eq(quota_used(quota, 5, QUOTA_LEASES), 7);
	cr_expect_eq(quota_charge(quota, 5, QUOTA_LEASES, &more, &error), -EDQUOT);
	user = quota_next_user(quota, NULL);
	cr_assert(user);
	cr_expect_eq(quota_user_uid(user), 5);
	cr_expect_null(quota_next_user(quota, user));
	quota_shrink(&held, 1);
	cr_expect_eq(quota_charge(quota, 5, QUOTA_LEASES, &more, &error), 0);
	quota_release(&held);
	quota_release(&more);
}

/* ---- what base/quota.h says once ---- */

#define LIST_BYTES 512

/* How many keys a list of them has, such as "a, b, c: u64?". */
static unsigned count_of(const char *keys)
{
	unsigned count = 1;

	for (const char *at = keys; *at; at++)
		count += *at == ',';
	return count;
}

/* type: "" of a u64, or ": u64?". */
static void expect_in(const char *keys, const char *key, const char *type)
{
	char entry[LIST_BYTES], list[LIST_BYTES];

	snprintf(list, sizeof(list), " %s,", keys);
	snprintf(entry, sizeof(entry), " %s%s,", key, type);
	cr_expect(strstr(list, entry), "\"%s\" is not in \"%s\"", entry, list);
}

/* gpuwmd writes these keys in loops; the records tell them to whoever reads docs/protocol.md against them. hello leaves out
 * a quota that has no limit. */
Test(quota, names_stand_in_the_records)
{
	for (int kind = 0; kind < QUOTA_KINDS; kind++) {
		const bool has_limit = quota_alone(&quota_defaults, (enum quota_kind)kind) != QUOTA_NONE;

		expect_in(limits_told_record.beside, quota_rows[kind].key, has_limit ? "" : ": u64?");
		expect_in(user_told_record.beside, quota_rows[kind].name, "");
	}
	cr_expect_eq(count_of(limits_told_record.beside), QUOTA_KINDS, "%s", limits_told_record.beside);
	cr_expect_eq(count_of(user_told_record.beside), QUOTA_KINDS, "%s", user_told_record.beside);
}

Test(quota, refusals_count_in_the_unit_of_each_and_name_its_key)
{
	char refusal[LIST_BYTES];

	quota_set_limits(quota, &(struct quota_limits){0});
	for (int kind = 0; kind < QUOTA_KINDS; kind++) {
		struct quota_charge charge = {0};
		const char *none = quota_rows[kind].in_bytes ? "0 B" : "0";

		cr_expect_eq(quota_charge_amount(quota, 5, (enum quota_kind)kind, 2048, &charge, &error),
			     -EDQUOT);
		snprintf(refusal, sizeof(refusal), "uid 5 may have %s %s; it has %s and asks for %s more", none,
			 quota_rows[kind].noun, none, quota_rows[kind].in_bytes ? "2.0 KiB" : "2048");
		cr_expect_str_eq(error.message, refusal);
		cr_expect(strstr(error.detail, quota_rows[kind].key), "%s", error.detail);
	}
}

/* ---- shares ---- */

TestSuite(share);

static const struct share_table thousand = {
	.all = 1024, .most = SHARE_NONE, .noun = "things", .key = "things_per_uid"};

static uint64_t most(uint64_t own, uint64_t operators, uint64_t others)
{
	return share_most(&thousand, &(struct share_held){own, operators, others});
}

Test(share, of_users_halve_what_operators_and_others_leave)
{
	cr_expect_eq(share_reserved(1024), 128);
	cr_expect_eq(share_alone(&thousand), 448);
	cr_expect_eq(most(448, 0, 0), 448, "what a user has does not count against it");
	cr_expect_eq(most(0, 0, 448), 224);
	cr_expect_eq(most(0, 128, 448), 224, "what operators have of their eighth is kept anyway");
	cr_expect_eq(most(0, 576, 0), 224, "what operators have beyond it is not there for users");
	cr_expect_eq(most(0, 1024, 448), 0);
	cr_expect_eq(most(0, 0, 895), 1, "the last one is not halved");
	cr_expect_eq(most(0, 0, 896), 0);
}

Test(share, keeps_what_is_held_and_refuses_more)
{
	const struct share_held over = {.own = 600, .others = 300};
	struct error why;

	cr_expect(share_fits(&thousand, &over, 0));
	cr_expect_not(share_fits(&thousand, &over, 1));
	cr_expect_eq(share_check(&thousand, &over, 7, 1, &why), -EDQUOT);
	cr_expect_str_eq(why.message,
			 "uid 7 may have 298 things; it has 600 and asks for 1 more: of 1024, 128 are kept for "
			 "operators, and other users hold 300");
	cr_expect(strstr(why.detail, "let go of some; an operator may raise things_per_uid in [limits]"), "%s",
		  why.detail);
}

Test(share, of_a_key_stands_for_the_half_and_leaves_the_eighth)
{
	struct share_table table = thousand;

	table.most = 1000;
	cr_expect_eq(share_alone(&table), 896);
	cr_expect_eq(share_most(&table, &(struct share_held){.others = 100}), 796);
	table.most = 3;
	cr_expect_eq(share_alone(&table), 3);
	table.most = SHARE_NONE;
	table.percent = 100;
	cr_expect_eq(share_alone(&table), 896);
	table.percent = 10;
	cr_expect_eq(share_alone(&table), 90);
	table.all = 0;
	cr_expect_eq(share_alone(&table), SHARE_NONE, "nobody shares it");
}

Test(share, of_the_largest_table_does_not_overflow)
{
	const struct share_table table = {.all = UINT64_MAX, .most = SHARE_NONE, .percent = 100};

	cr_expect_eq(share_alone(&table), UINT64_MAX - UINT64_MAX / 8);
}

/* ---- two users fill every table ---- */

/* What is taken of the table, by users and operators: of all kinds the same number. */
static uint64_t taken(void *data, enum quota_kind kind)
{
	(void)kind;
	return *(uint64_t *)data;
}

/* Charges the user with one after the other, or with large pieces of what is counted in bytes. Returns how much it got. */
static uint64_t fill(enum quota_kind kind, uid_t uid)
{
	uint64_t step = quota_rows[kind].in_bytes ? KIB(1) : 1, amount = 0;
	struct quota_charge charge;

	for (; step > 0; amount += step) {
		if (quota_charge_amount(quota, uid, kind, step, &charge, &error) < 0)
			break;
	}
	cr_expect_eq(quota_used(quota, uid, kind), amount);
	return amount;
}

/* Of each table that operators and users share. */
Test(quota, two_users_who_fill_a_table_leave_an_eighth_to_operators)
{
	uint64_t all_taken;

	for (int kind = 0; kind < QUOTA_KINDS; kind++) {
		const uint64_t all = quota_defaults.all[kind], reserved = all / 8,
			       alone = (all - reserved + 1) / 2;
		const uint64_t step = quota_rows[kind].in_bytes ? KIB(1) : 1;
		uint64_t first, second, third;

		if (all == 0)
			continue;
		quota = quota_free(quota);
		quota = quota_new(&quota_defaults);
		quota_set_taken(quota, taken, &all_taken);
		all_taken = 0;
		first = fill((enum quota_kind)kind, 2001);
		cr_expect_leq(alone - first, step - 1, "%s: %llu", quota_rows[kind].name,
			      (unsigned long long)first);
		cr_expect(strstr(error.message, "are kept for operators, and other users hold 0"), "%s",
			  error.message);
		second = fill((enum quota_kind)kind, 2002);
		cr_expect_leq((all - reserved - first + 1) / 2 - second, step - 1, "%s: %llu",
			      quota_rows[kind].name, (unsigned long long)second);
		third = fill((enum quota_kind)kind, 2003);
		cr_expect_gt(third, 0, "%s", quota_rows[kind].name);
		all_taken = first + second + third;
		cr_expect_eq(quota_check_operators(quota, (enum quota_kind)kind, reserved, &error), 0, "%s",
			     error.message);
		all_taken = all; /* operators hold the rest */
		cr_expect_eq(quota_check_operators(quota, (enum quota_kind)kind, 1, &error), -EDQUOT);
		cr_expect(strstr(error.message, "uid 2001 most of them"), "%s", error.message);
		cr_expect(strstr(error.detail, "gpuwmctl retire --uid 2001"), "%s", error.detail);
	}
}

/* A gpuwmd without shares let two users have all. */
Test(quota, what_two_users_had_before_stays_and_they_get_no_more)
{
	struct quota_charge first, second, more = {0};
	uint64_t all_taken = VERSIONS_MAX;

	quota_set_limits(quota, &quota_defaults);
	quota_set_taken(quota, taken, &all_taken);
	cr_assert_eq(quota_adopt(quota, 2001, QUOTA_VERSIONS, 512, &first, &error), 0);
	cr_assert_eq(quota_adopt(quota, 2002, QUOTA_VERSIONS, 512, &second, &error), 0);
	cr_expect_eq(quota_charge(quota, 2001, QUOTA_VERSIONS, &more, &error), -EDQUOT);
	cr_expect_eq(quota_charge(quota, 2003, QUOTA_VERSIONS, &more, &error), -EDQUOT);
	cr_expect_eq(quota_check_operators(quota, QUOTA_VERSIONS, 1, &error), -EDQUOT);
	quota_release(&first); /* gpuwmctl retire --uid 2001 */
	all_taken = 512;
	cr_expect_eq(quota_check_operators(quota, QUOTA_VERSIONS, 512, &error), 0);
	cr_expect_eq(quota_charge_amount(quota, 2001, QUOTA_VERSIONS, 192, &more, &error), 0, "%s",
		     error.message);
	quota_release(&second);
	quota_release(&more);
}

/* ---- the table of docs/how-to/users.md ---- */

/* "1,024", or "1.8 GiB". */
static const char *documented(enum quota_kind kind, uint64_t amount, char text[32])
{
	if (quota_rows[kind].in_bytes)
		return bytes_format(amount, text);
	if (amount < 1000)
		snprintf(text, 32, "%u", (unsigned)amount);
	else
		snprintf(text, 32, "%u,%03u", (unsigned)(amount / 1000), (unsigned)(amount % 1000));
	return text;
}

Test(quota, documented_shares_are_those_of_the_table)
{
	char page[32768], row[256], alone[32], next[32], all[32], kept[32];
	FILE *file = fopen("docs/how-to/users.md", "re");
	size_t bytes;

	cr_assert(file, "run it in the root of the repository");
	bytes = fread(page, 1, sizeof(page) - 1, file);
	page[bytes] = '\0';
	fclose(file);
	for (enum quota_kind kind = 0; kind < QUOTA_KINDS; kind++) {
		const uint64_t of = quota_defaults.all[kind], first = quota_alone(&quota_defaults, kind);

		if (of == 0) {
			snprintf(row, sizeof(row), "| `%s` | %s | – | – | – |", quota_rows[kind].key,
				 first == QUOTA_NONE ? "–" : documented(kind, first, alone));
		} else {
			snprintf(row, sizeof(row), "| `%s` | %s | %s | %s | %s |", quota_rows[kind].key,
				 documented(kind, first, alone),
				 documented(kind, (of - of / 8 - first + 1) / 2, next),
				 documented(kind, of, all), documented(kind, of / 8, kept));
		}
		cr_expect(strstr(page, row), "there is no row \"%s\"", row);
	}
}
