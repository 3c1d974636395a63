/* Whatever the ledger has become after random operations, it comes back from its snapshot as it was.
 * GPUWM_SEED repeats a run. */
#include "tests/support/daemon/random.h"
#include "tests/support/daemon/snapshot.h"

static bool is_told(const struct version *version)
{
	return version->state == VERSION_READY || version->state == VERSION_RETIRING;
}

/* What the snapshot tells of the ledger, counted. */
static struct registry_counts count(uint64_t ret_charged[2])
{
	struct registry_counts counts = {.aliases = registry_counts(ledger.registry).aliases};
	struct version *version = NULL;

	while ((version = registry_next_version(ledger.registry, NULL, version))) {
		if (!is_told(version))
			continue;
		fake_store(version);
		counts.versions++;
		counts.pins += version->pin_count;
		for (uint32_t i = 0; i < version->replica_count; i++) {
			const struct replica *replica = &version->replicas[i];
			counts.segments += replica->segment_count;
			counts.fds += replica->segment_count + 1;
			counts.bytes += replica->bytes;
			counts.index_bytes += replica->index.bytes;
			ret_charged[replica->device == devices[1]] += replica->bytes;
		}
	}
	return counts;
}

static void compare_version(const struct version *version)
{
	struct ref ref = {.has_id = true, .id = version->id};
	struct version *again = NULL;
	uint64_t generation;

	cr_assert_eq(registry_find(back.registry, &ref, &again, &generation, NULL), 0);
	cr_assert_eq(registry_by_publish(back.registry, &version->publish), again);
	cr_assert_eq(again->alias_count, version->alias_count);
	cr_assert_eq(again->replica_count, version->replica_count);
	cr_assert(again->state == version->state && version_complete(again));
	for (uint32_t i = 0; i < again->replica_count; i++) {
		const struct replica *replica = &again->replicas[i];
		cr_assert_eq(replica->index.fd, FAKE_FD(version->replicas[i].index.name));
		for (uint32_t k = 0; k < replica->segment_count; k++)
			cr_assert_eq(replica->segments[k].segment->fd,
				     FAKE_FD(version->replicas[i].segments[k].segment->name));
	}
}

static uint64_t compare(void)
{
	uint64_t charged[2] = {0};
	struct registry_counts counts = count(charged), real;
	struct version *version = NULL;

	back_from_ledger();
	expect_same_bytes();
	real = registry_counts(back.registry);
	cr_assert_eq(memcmp(&counts, &real, sizeof(counts)), 0);
	cr_assert_eq(device_find(&back.devices, ledger.host->id)->used, charged[0]);
	cr_assert_eq(device_find(&back.devices, ledger.gpu->id)->used, charged[1]);
	cr_assert_eq(fake_taken, counts.fds);
	while ((version = registry_next_version(ledger.registry, NULL, version))) {
		if (is_told(version))
			compare_version(version);
	}
	return counts.versions;
}

Test(snapshot, random_ledger_comes_back_as_it_was)
{
	uint64_t versions = 0;

	random_begin("daemon_snapshot_random");
	for (unsigned i = 1; i <= OPERATIONS; i++) {
		random_step(i);
		if (i % 100 == 0)
			versions += compare();
	}
	cr_expect_gt(versions, OPERATIONS / 100 * 5, "too tame: %lu versions in all snapshots", versions);
	back_clear();
	ledger_close();
}
