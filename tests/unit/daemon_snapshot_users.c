/* What users have comes back as theirs. */
#include "tests/support/daemon/snapshot.h"

SnapshotTest(snapshot_users, claims_come_back_reserved_for_their_user)
{
	const struct ref kept = {.model = "m", .name = "next"}, begun = {.model = "m", .name = "begun"};
	const struct version_id publish = {{1}};
	struct claim *list = NULL, *claim;

	cr_assert_eq(claim_take(ledger.claims, &kept, &(struct claim_holder){&list, &list, ledger.quota, 7},
				&claim, &ledger.error),
		     0);
	cr_assert_eq(claim_take(ledger.claims, &begun, &(struct claim_holder){&list, &list, ledger.quota, 7},
				&claim, &ledger.error),
		     0);
	claim_begin(ledger.claims, claim, &publish);
	back_from_ledger();
	cr_assert_eq(claim_count(back.claims), 1);
	claim = claim_find(back.claims, &kept);
	cr_assert(claim);
	cr_expect_eq(claim->uid, 7);
	cr_expect_null(claim->holder);
	cr_expect_eq(quota_used(ledger.quota, 7, QUOTA_CLAIMS), 3, "two here, and one that came back");
}

SnapshotTest(snapshot_users, owners_are_charged_with_what_comes_back_and_operators_are_not)
{
	const struct joiners joiners = {.uid_count = 1, .gid_count = 1, .uids = {8}, .gids = {9}};
	struct version *owners = fake_ready("m", "v1"), *operators = fake_ready("m", "v2");
	const struct replica *part = &owners->replicas[0];
	const struct version *version;

	operators->by_operator = true;
	cr_assert_eq(version_set_joiners(owners, &joiners), 0);
	back_from_ledger();
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_VERSIONS), 1);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_BYTES), part->bytes);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_FDS), part->segment_count + 1);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_INDEX_BYTES), part->index.bytes);
	version = registry_next_version(back.registry, "m", NULL);
	cr_assert(version->joiners);
	cr_expect(joiners_have_uid(version->joiners, 8));
	cr_expect_eq(version->joiners->gids[0], 9);
	cr_expect_not(version->by_operator);
	cr_expect_null(version->next_in_model->joiners);
	cr_expect(version->next_in_model->by_operator);
}
