/* Two versions of one tag in a state: the older one was cached and is retired. */
#include "tests/support/daemon/snapshot.h"

/* Of a cached version that was retired: a newer one has its tag. */
static struct version *cached_and_retired(const char *tag)
{
	struct version *version = fake_ready("m", tag);

	registry_remove_aliases(ledger.registry);
	version->cache.cached = true;
	cr_assert_eq(registry_retire(ledger.registry, version, NULL), 0);
	return version;
}

SnapshotTest(snapshot_cached, lost_version_leaves_its_tag_to_the_one_that_has_it)
{
	struct version *old = cached_and_retired("a"), *new = fake_ready("m", "a");
	char id[VERSION_ID_TEXT];

	fake_missing[0] = old->replicas[0].segments[0].segment->name;
	back_from_ledger();
	cr_expect_eq(back.lost, 1);
	cr_expect(version_id_equal(&back_find("m@a")->id, &new->id));
	hex128_format(old->id.bytes, id);
	cr_assert_eq(back_find(id)->state, VERSION_FAILED);
	registry_forget_failed(back.registry, back_find(id));
	cr_expect_null(back_find(id));
	cr_expect(version_id_equal(&back_find("m@a")->id, &new->id));
}

SnapshotTest(snapshot_cached, lost_versions_of_one_tag_are_all_told)
{
	struct version *old = cached_and_retired("a"), *new = fake_ready("m", "a");
	char id[VERSION_ID_TEXT];

	fake_all_missing = true;
	back_from_ledger();
	cr_expect_eq(back.lost, 2);
	cr_expect(version_id_equal(&back_find("m@a")->id, &new->id));
	hex128_format(old->id.bytes, id);
	cr_expect_eq(back_find(id)->error.code, -ESTALE);
}

SnapshotTest(snapshot_cached, a_companion_knows_its_version)
{
	struct version *version = fake_ready("m", "v1"), *companion = fake_ready("m", "c");

	companion->cache = (struct version_cache){.cached = true, .companion_of = version->id};
	back_from_ledger();
	cr_expect(version_id_equal(&back_find("m@c")->cache.companion_of, &version->id));
	cr_expect(version_id_equal(&back_find("m@v1")->cache.companion_of, &(struct version_id){0}));
	expect_same_bytes();
}
