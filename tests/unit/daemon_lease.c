#include "tests/support/daemon/ledger.h"

static struct lease *held, *held_by_other;
static int holder, other;

LedgerTest(lease, counts_on_version_registry_and_quota)
{
	struct version *version = ledger_ready("m", "v1");
	struct lease *lease = ledger_lease(version, &holder, &held);

	cr_expect_eq(lease->version, version);
	cr_expect_eq(lease->holder, &holder);
	cr_expect_gt(lease->since_ms, 1700000000000);
	cr_expect_eq(version->lease_count, 1);
	cr_expect_eq(version->leases, lease);
	cr_expect_eq(held, lease);
	cr_expect_eq(registry_counts(ledger.registry).leases, 1);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_LEASES), 1);
	cr_expect_eq(lease_release(ledger.registry, lease), version);
	cr_expect_null(held);
	cr_expect_null(version->leases);
	cr_expect_eq(version->lease_count, 0);
	cr_expect_eq(registry_counts(ledger.registry).leases, 0);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_LEASES), 0);
}

LedgerTest(lease, is_found_by_its_holder_only)
{
	struct version *version = ledger_ready("m", "v1");
	struct lease *lease;

	cr_expect_null(lease_find(ledger.registry, 1, &holder), "no lease was ever granted");
	lease = ledger_lease(version, &holder, &held);
	cr_expect_eq(lease_find(ledger.registry, lease->id, &holder), lease);
	cr_expect_null(lease_find(ledger.registry, lease->id, &other));
	cr_expect_null(lease_find(ledger.registry, lease->id + 1, &holder));
	cr_expect_null(lease_find(ledger.registry, lease->id + 64, &holder), "the same bucket");
}

LedgerTest(lease, id_is_never_used_again)
{
	struct version *version = ledger_ready("m", "v1");
	uint64_t last = 0;

	for (int i = 0; i < 1000; i++) {
		struct lease *lease = ledger_lease(version, &holder, &held);
		cr_assert_gt(lease->id, last);
		last = lease->id;
		lease_release(ledger.registry, lease);
		cr_assert_null(lease_find(ledger.registry, last, &holder));
	}
}

LedgerTest(lease, leaves_both_lists_from_any_place)
{
	struct version *version = ledger_ready("m", "v1");
	struct lease *a = ledger_lease(version, &holder, &held);
	struct lease *b = ledger_lease(version, &other, &held_by_other);
	struct lease *c = ledger_lease(version, &holder, &held);
	struct lease *d = ledger_lease(version, &holder, &held);

	lease_release(ledger.registry, c);
	cr_expect_eq(held, d);
	cr_expect_eq(d->next_of_holder, a);
	cr_expect_eq(version->leases, d);
	cr_expect_eq(d->next_of_version, b);
	lease_release(ledger.registry, a);
	cr_expect_null(d->next_of_holder);
	lease_release(ledger.registry, d);
	cr_expect_null(held);
	cr_expect_eq(version->leases, b);
	lease_release(ledger.registry, b);
	cr_expect_null(held_by_other);
	cr_expect_null(version->leases);
}

LedgerTest(lease, ten_thousand_are_all_found)
{
	enum { COUNT = 10000 };
	static struct lease *leases[COUNT];
	struct version *version = ledger_ready("m", "v1");

	for (int i = 0; i < COUNT; i++)
		leases[i] = ledger_lease(version, &holder, &held);
	for (int i = 0; i < COUNT; i++)
		cr_assert_eq(lease_find(ledger.registry, leases[i]->id, &holder), leases[i]);
	for (int i = 0; i < COUNT; i += 2)
		lease_release(ledger.registry, leases[i]);
	for (int i = 1; i < COUNT; i += 2)
		cr_assert_eq(lease_find(ledger.registry, leases[i]->id, &holder), leases[i]);
	cr_expect_eq(version->lease_count, COUNT / 2);
}

LedgerTest(lease, is_of_ready_versions_only)
{
	struct version *version = ledger_building("m", "v1");
	struct lease *lease = NULL;

	expect_error(lease_grant(ledger.registry, version, 0,
				 &(struct lease_holder){.holder = &holder,
							.leases = &held,
							.quota = ledger.quota,
							.uid = LEDGER_UID},
				 &lease, &ledger.error),
		     -EINVAL, "m@v1 is building");
	ledger_make_ready(version);
	ledger_swap("m", "current", NULL);
	registry_retire(ledger.registry, version, NULL);
	expect_error(lease_grant(ledger.registry, version, 0,
				 &(struct lease_holder){.holder = &holder,
							.leases = &held,
							.quota = ledger.quota,
							.uid = LEDGER_UID},
				 &lease, &ledger.error),
		     -EINVAL, "m@v1 is retiring");
	cr_expect_null(lease);
	cr_expect_null(held);
}

LedgerTest(lease, limit_per_user_is_named)
{
	struct quota_limits limits = quota_defaults;
	struct version *version = ledger_ready("m", "v1");
	struct lease *lease = NULL;
	struct quota *small;

	limits.per_uid[QUOTA_LEASES] = 1;
	small = quota_new(&limits);
	cr_assert_eq(lease_grant(ledger.registry, version, 0,
				 &(struct lease_holder){
					 .holder = &holder, .leases = &held, .quota = small, .uid = 5},
				 &lease, NULL),
		     0);
	expect_error(lease_grant(ledger.registry, version, 0,
				 &(struct lease_holder){
					 .holder = &holder, .leases = &held, .quota = small, .uid = 5},
				 &lease, &ledger.error),
		     -EDQUOT, "uid 5 has all 1 leases");
	cr_expect_eq(version->lease_count, 1);
	lease_release(ledger.registry, lease);
	quota_free(small);
}

LedgerTest(lease, costs_about_a_hundred_bytes)
{
	cr_expect_leq(sizeof(struct lease), 168);
}
