#include "daemon/ledger/claim.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HOLDERS 4
#define NAMES 40
#define MOST 5 /* of one user; two holders are one's */

static struct claim_table *table;
static struct quota *quota;
static struct claim *held[HOLDERS]; /* the lists; a holder is the address of its */
static struct error error;

static void open_table(void)
{
	struct quota_limits limits = quota_defaults;

	limits.per_uid[QUOTA_CLAIMS] = MOST;
	quota = quota_new(&limits);
	table = claim_table_new();
}

static void close_table(void)
{
	claim_table_free(table);
	quota_free(quota);
}

TestSuite(claim, .init = open_table, .fini = close_table);

static struct ref name_of(const char *model, const char *tag)
{
	struct ref name = {0};

	snprintf(name.model, sizeof(name.model), "%s", model);
	snprintf(name.name, sizeof(name.name), "%s", tag);
	return name;
}

static int take(struct ref name, int holder, struct claim **ret)
{
	return claim_take(table, &name,
			  &(struct claim_holder){&held[holder], &held[holder], quota, (uid_t)(holder / 2)}, ret,
			  &error);
}

Test(claim, is_of_one_name_and_one_holder)
{
	struct ref v1 = name_of("m", "v1"), v2 = name_of("m", "v2"), other = name_of("m2", "v1");
	struct claim *claim = NULL;

	cr_assert_eq(take(v1, 0, &claim), 0);
	cr_expect_eq(claim_find(table, &v1), claim);
	cr_expect_null(claim_find(table, &v2));
	cr_expect_null(claim_find(table, &other));
	cr_expect_eq(claim->holder, &held[0]);
	cr_expect_eq(held[0], claim);
	cr_expect_gt(claim->since_ms, 0);
	cr_expect_eq(claim_count(table), 1);
	claim_end(table, claim);
	cr_expect_null(claim_find(table, &v1));
	cr_expect_null(held[0]);
	cr_expect_eq(quota_used(quota, 0, QUOTA_CLAIMS), 0);
}

Test(claim, names_that_join_to_the_same_letters_differ)
{
	struct claim *claim = NULL, *other = NULL;

	cr_assert_eq(take(name_of("ab", "c"), 0, &claim), 0);
	cr_assert_eq(take(name_of("a", "bc"), 1, &other), 0);
	cr_expect_neq(claim, other);
}

Test(claim, begins_with_a_publish)
{
	const struct version_id publish = {{7}};
	struct claim *claim = NULL;

	cr_assert_eq(take(name_of("m", "v1"), 0, &claim), 0);
	cr_expect(!claim_has_begun(claim));
	claim_begin(table, claim, &publish);
	cr_expect(claim_has_begun(claim));
	cr_expect(version_id_equal(&claim->publish, &publish));
}

Test(claim, counts_for_its_user)
{
	struct claim *claim = NULL;
	char tag[16];

	for (int i = 0; i < MOST; i++) {
		snprintf(tag, sizeof(tag), "v%d", i);
		cr_assert_eq(take(name_of("m", tag), i % 2, &claim), 0);
	}
	cr_expect_eq(take(name_of("m", "more"), 1, &claim), -EDQUOT);
	cr_expect(strstr(error.detail, "claims_per_uid"), "%s", error.detail);
	cr_expect_eq(claim_count(table), MOST);
	cr_assert_eq(take(name_of("m", "more"), 2, &claim), 0, "another user");
	claim_end(table, held[0]);
	cr_assert_eq(take(name_of("m", "again"), 1, &claim), 0);
}

/* ---- against a model ---------------------------------------------------- */

static struct model {
	struct claim *claim;
	int holder;
	unsigned order;
} models[NAMES];

static unsigned count_of(int user)
{
	unsigned count = 0;

	for (int i = 0; i < NAMES; i++)
		count += models[i].claim && models[i].holder / 2 == user;
	return count;
}

static void try_one(unsigned random, unsigned step)
{
	int i = (int)(random % NAMES), holder = (int)(random / NAMES % HOLDERS);
	struct model *m = &models[i];
	int expected = count_of(holder / 2) == MOST ? -EDQUOT : 0;
	char tag[16];

	snprintf(tag, sizeof(tag), "v%d", i / 2);
	struct ref name = name_of(i % 2 ? "m" : "n", tag);
	cr_assert_eq(claim_find(table, &name), m->claim);
	if (m->claim) {
		cr_assert_eq(m->claim->holder, &held[m->holder]);
		claim_end(table, m->claim);
		m->claim = NULL;
		return;
	}
	cr_assert_eq(take(name, holder, &m->claim), expected);
	m->holder = holder;
	m->order = step;
}

/* Each list has what the model has, and the table tells all by age. */
static void compare(void)
{
	unsigned listed = 0, last = 0;
	const struct claim *next = NULL;

	for (int holder = 0; holder < HOLDERS; holder++) {
		for (const struct claim *claim = held[holder]; claim; claim = claim->next_of_holder) {
			cr_assert_eq(claim->holder, &held[holder]);
			listed++;
		}
	}
	cr_assert_eq(listed, claim_count(table));
	cr_assert_eq(listed, count_of(0) + count_of(1));
	while ((next = claim_next(table, next))) {
		for (int i = 0; i < NAMES; i++) {
			if (models[i].claim != next)
				continue;
			cr_assert_gt(models[i].order, last);
			last = models[i].order;
		}
		listed--;
	}
	cr_assert_eq(listed, 0);
}

Test(claim, does_what_a_model_does)
{
	const char *given = getenv("GPUWM_SEED");
	unsigned seed = given ? (unsigned)atoi(given) : (unsigned)time(NULL);

	fprintf(stderr, "daemon_claim: GPUWM_SEED=%u\n", seed);
	srand(seed);
	for (unsigned step = 1; step <= 20000; step++) {
		try_one((unsigned)rand(), step);
		compare();
	}
}

Test(claim, that_is_reserved_is_charged_and_given_to_a_holder)
{
	const struct ref name = {.model = "m", .name = "v1"};
	struct claim *list = NULL, *claim;
	uint64_t changes = claim_changes(table);

	cr_assert_eq(claim_reserve(table, &name, quota, 9, &error), 0);
	cr_expect_eq(claim_reserve(table, &name, quota, 9, &error), -EEXIST);
	claim = claim_find(table, &name);
	cr_assert(claim);
	cr_expect_null(claim->holder);
	cr_expect_eq(claim->uid, 9);
	cr_expect(claim_is_kept(claim));
	cr_expect_eq(quota_used(quota, 9, QUOTA_CLAIMS), 1);
	cr_expect_gt(claim_changes(table), changes);
	claim_give(table, claim, &list, &list);
	cr_expect_eq(claim->holder, &list);
	cr_expect_eq(list, claim);
	claim_leave(table, claim);
	cr_expect_null(claim->holder);
	cr_expect_null(list);
	claim_end(table, claim);
	cr_expect_eq(quota_used(quota, 9, QUOTA_CLAIMS), 0);
}

Test(claim, that_has_begun_is_not_kept)
{
	const struct version_id publish = {{1}};
	struct claim *list = NULL, *claim;
	const struct ref name = {.model = "m", .name = "v1"};

	cr_assert_eq(claim_take(table, &name, &(struct claim_holder){&list, &list, quota, 9}, &claim, &error),
		     0);
	cr_expect(claim_is_kept(claim));
	claim_begin(table, claim, &publish);
	cr_expect_not(claim_is_kept(claim));
	claim_end(table, claim);
}
