#include "tests/support/daemon/snapshot.h"
#include "tests/support/fail_alloc.h"

SnapshotTest(snapshot, empty_ledger_comes_back_with_its_devices)
{

	back_from_ledger();
	cr_expect_eq(registry_counts(back.registry).versions, 0);
	cr_expect_eq(back.devices.count, 2);
	cr_expect_str_eq(device_find(&back.devices, LEDGER_GPU)->name, "name of " LEDGER_GPU);
	cr_expect(device_find(&back.devices, LEDGER_GPU)->kind->is_gpu);
	cr_expect_not(device_find(&back.devices, "host")->kind->is_gpu);
	cr_expect_eq(device_find(&back.devices, "host")->total, GIB(100));
	cr_expect_eq(device_find(&back.devices, "host")->granularity, 4096);
	cr_expect_eq(back.lost, 0);
	expect_same_bytes();
}

SnapshotTest(snapshot, revoked_leases_and_forced_ends_come_back)
{
	struct version *version = fake_ready("m", "v1"), *late, *over;

	cr_assert_eq(version_revoke_id(version, 1000, 7, &ledger.error), 0);
	cr_assert_eq(version_revoke_id(version, 1000, UINT64_C(1) << 40, &ledger.error), 0);
	cr_assert_eq(version_revoke_user(version, 1001, 30, &ledger.error), 0);
	expect_error(version_revoke_id(version, 1000, 7, &ledger.error), -EEXIST, "lease 7 was revoked before");
	late = fake_ready("m", "v2");
	over = fake_ready("m", "v3");
	cr_assert_eq(registry_retire(ledger.registry, late, NULL), 0);
	cr_assert_eq(registry_retire(ledger.registry, over, NULL), 0);
	late->force_at_ms = 12345;
	over->forced = true;
	back_from_ledger();
	version = back_find("m@v1");
	cr_expect(version_lease_revoked(version, 1000, 7) &&
		  version_lease_revoked(version, 1000, UINT64_C(1) << 40));
	cr_expect_not(version_lease_revoked(version, 1000, 8));
	cr_expect(version_lease_revoked(version, 1001, 8) && version_lease_revoked(version, 1001, 30));
	cr_expect_not(version_lease_revoked(version, 1001, 31));
	cr_expect_eq(registry_revoked_ids(back.registry, 1000), 2);
	cr_expect_eq(registry_revoked_ids(back.registry, 1001), 0);
	expect_same_bytes();
	cr_expect_eq(back_find("m@v2")->force_at_ms, 12345);
	cr_expect_not(back_find("m@v2")->forced);
	cr_expect(back_find("m@v3")->forced);
	cr_expect_not(back_find("m@v1")->forced);
}

SnapshotTest(snapshot, version_comes_back_as_it_was)
{
	struct version *version = fake_ready("m", "v1"), *again;
	struct replica *replica = version->replicas, *found;

	version_pin(version, "night", NULL);
	version_pin(version, "day", NULL);
	error_set(&version->error, -EEXIST, "a detail", "the alias was not moved");
	back_from_ledger();
	again = back_find("m@v1");
	cr_assert(again);
	cr_expect(version_id_equal(&again->id, &version->id));
	cr_expect_eq(registry_by_publish(back.registry, &version->publish), again);
	cr_expect(again->state == VERSION_READY && again->world == 1 && again->owner == LEDGER_UID);
	cr_expect(again->created_ms == version->created_ms && again->ready_ms == version->ready_ms);
	cr_expect_eq(again->error.code, -EEXIST);
	cr_expect_str_eq(again->error.message, "the alias was not moved");
	cr_expect_str_eq(again->error.detail, "a detail");
	cr_assert_eq(again->pin_count, 2);
	cr_expect_str_eq(again->pins[0], "night");
	cr_expect_str_eq(again->pins[1], "day");
	cr_assert_eq(again->replica_count, 1);
	found = again->replicas;
	cr_expect(found->committed && found->checked && version_complete(again));
	cr_expect(found->index.bytes == 100 && found->index.name == replica->index.name);
	cr_expect_eq(found->index.fd, FAKE_FD(replica->index.name));
	cr_assert_eq(found->segment_count, 2);
	cr_expect_eq(found->segments[1].segment->fd, FAKE_FD(replica->segments[1].segment->name));
	cr_expect(found->bytes == 2000 && found->tensors == 12);
	cr_expect(digest_equal(&found->layout, &replica->layout));
	cr_expect(digest_equal(&found->content, &replica->content));
	cr_expect(digest_equal(&found->promised, &replica->content));
	cr_expect_eq(device_find(&back.devices, "host")->used, 2000);
	cr_expect_eq(fake_taken, 3);
}

SnapshotTest(snapshot, numbers_of_the_ledger_go_on)
{
	struct message_writer w;

	fake_next_name = 77;
	fake_ready("m", "v1");
	back_from_ledger();
	cr_expect_eq(back.snapshot.epoch, 4);
	cr_expect_eq(back.snapshot.next_name, 80);
	cr_expect_eq(back.snapshot.ledger.bytes[2], 3);
	cr_expect_eq(back.snapshot.scrub_from_ms, 0, "one that an earlier gpuwmd wrote has none");
	fake_next_name = 5;
	fake_scrub_from_ms = 1700000000000;
	fake_put(&w);
	cr_assert_eq(back_take(w.buffer.data, w.buffer.size), 0);
	cr_expect_eq(back.snapshot.next_name, 80, "above every name that it knows");
	cr_expect_eq(back.snapshot.scrub_from_ms, 1700000000000);
	message_writer_clear(&w);
}

SnapshotTest(snapshot, aliases_keep_their_generations_and_order)
{
	static const char *const names[] = {"current", "test", "prod", "previous"};
	static const char *const before[] = {"m@v2", NULL, "m@v1", NULL};
	static const uint64_t generations[] = {3, 1, 2, 2};
	struct version *v1 = fake_ready("m", "v1"), *v2 = fake_ready("m", "v2");
	const struct alias *alias = NULL;
	const char *model;
	size_t i = 0;

	ledger_swap("m", "test", v1);
	ledger_swap("m", "prod", v1);
	ledger_swap("m", "prod", v2);
	ledger_swap("m", "current", v2);
	ledger_swap("m", "current", v1);
	back_from_ledger();
	while ((alias = registry_next_alias(back.registry, "m", alias, &model))) {
		cr_assert_lt(i, 4);
		cr_expect_str_eq(alias->name, names[i]);
		cr_expect_eq(alias->generation, generations[i]);
		cr_expect_eq(registry_alias_before(alias), before[i] ? back_find(before[i]) : NULL, "%s",
			     names[i]);
		i++;
	}
	cr_expect_eq(i, 4);
	cr_expect_eq(back_find("m@previous"), back_find("m@v2"));
	cr_expect_eq(back_find("m")->alias_count, 2);
	cr_expect_eq(back_find("m@v2")->alias_count, 1);
	expect_same_bytes();
}

SnapshotTest(snapshot, only_what_is_ready_or_retiring_is_told)
{
	struct version *retiring, *freeing;

	fake_ready("m", "ready");
	retiring = fake_ready("m", "retiring");
	freeing = fake_ready("m", "freeing");
	cr_assert_eq(registry_retire(ledger.registry, retiring, NULL), 0);
	cr_assert_eq(registry_retire(ledger.registry, freeing, NULL), 0);
	freeing->freeing = true;
	ledger_building("m", "building");
	version_move(ledger_building("m", "checking"), VERSION_CHECKING);
	ledger_fail(ledger_building("m", "failed"));
	back_from_ledger();
	cr_expect_eq(registry_counts(back.registry).versions, 2);
	cr_expect_eq(back_find("m@ready")->state, VERSION_READY);
	cr_expect_eq(back_find("m@retiring")->state, VERSION_RETIRING);
	cr_expect(version_unused(back_find("m@retiring")));
	cr_expect_null(back_find("m@failed"));
}

/* Bytes are kept of what never changes only. */
SnapshotTest(snapshot, what_changes_is_told_anew)
{
	struct version *version = fake_ready("m", "v1");

	back_from_ledger();
	version_pin(version, "keep", NULL);
	error_set(&version->error, -EEXIST, NULL, "not moved");
	registry_remove_aliases(ledger.registry);
	back_from_ledger();
	cr_expect_eq(back_find("m@v1")->pin_count, 1);
	cr_expect_eq(back_find("m@v1")->error.code, -EEXIST);
	cr_expect_null(back_find("m"));
	version_unpin(version, "keep", NULL);
	registry_retire(ledger.registry, version, NULL);
	back_from_ledger();
	cr_expect_eq(back_find("m@v1")->pin_count, 0);
	cr_expect_eq(back_find("m@v1")->state, VERSION_RETIRING);
}

SnapshotTest(snapshot, budget_that_is_smaller_now_is_exceeded)
{
	struct budget_charge none = {0};
	struct device *host;

	fake_ready("m", "v1");
	device_table_budget(&back.devices, "host", 500, 0);
	back_from_ledger();
	host = device_find(&back.devices, "host");
	cr_expect(host->budget == 500 && host->used == 2000);
	expect_error(budget_charge(host, 1, &none, &ledger.error), -ENOSPC, "0 B of the budget of 500 B left");
}

SnapshotTest(snapshot, ready_version_can_be_used_as_before)
{
	struct lease *leases = NULL, *lease;
	struct swap_result swapped;
	struct version *version;

	fake_ready("m", "v1");
	fake_ready("m", "v2");
	back_from_ledger();
	version = back_find("m@v2");
	cr_assert_eq(lease_grant(back.registry, version, 0,
				 &(struct lease_holder){.holder = &back,
							.leases = &leases,
							.quota = ledger.quota,
							.uid = LEDGER_UID},
				 &lease, &ledger.error),
		     0);
	lease_release(back.registry, lease);
	cr_assert_eq(registry_swap(back.registry, &(struct alias_move){"m", "current", version, NULL}, &swapped,
				   &ledger.error),
		     0);
	cr_expect_eq(swapped.generation, 2);
	cr_assert_eq(registry_retire(back.registry, swapped.old, &ledger.error), 0);
	cr_expect(version_unused(swapped.old));
	budget_release(&swapped.old->replicas[0].charge);
	registry_remove(back.registry, swapped.old);
	cr_expect_eq(registry_counts(back.registry).fds, 3);
	expect_error(registry_add(back.registry, &(struct version_wish){"m", "v2", 1, 0, {0}}, &version,
				  &ledger.error),
		     -EEXIST, "m@v2 is there already");
}

/* ---- lost versions ---- */

/* 0: none. */
static void lose(uint64_t first, uint64_t second)
{
	memset(fake_missing, 0, sizeof(fake_missing));
	fake_missing[0] = first;
	fake_missing[1] = second;
}

static uint64_t segment_name(const struct version *version, uint32_t position)
{
	return version->replicas[0].segments[position].segment->name;
}

SnapshotTest(snapshot, version_without_a_descriptor_is_lost)
{
	struct version *kept = fake_ready("m", "v1"), *gone = fake_ready("m", "v2"), *found;

	ledger_swap("m", "current", gone);
	version_pin(gone, "keep", NULL);
	lose(segment_name(gone, 1), 0);
	back_from_ledger();
	cr_expect_eq(back.lost, 1);
	cr_expect_eq(fake_taken, 3, "none of its own");
	cr_expect_eq(device_find(&back.devices, "host")->used, 2000);
	cr_expect(registry_counts(back.registry).versions == 1 && registry_counts(back.registry).pins == 0);
	cr_expect(registry_counts(back.registry).fds == 3 && registry_counts(back.registry).aliases == 1);
	found = back_find("m@v2");
	cr_assert(found && version_id_equal(&found->id, &gone->id));
	cr_expect(found->state == VERSION_FAILED && found->replica_count == 0 && found->pin_count == 0);
	cr_expect_eq(found->error.code, -ESTALE);
	cr_expect_str_eq(found->error.message, "m@v2 was lost: the fd store gave back 2 of its 3 descriptors; "
					       "missing is segment 1 of rank 0 on host");
	cr_expect_str_eq(found->error.detail, "load or publish it again");
	cr_expect_null(back_find("m"));
	cr_expect(version_id_equal(&back_find("m@previous")->id, &kept->id));
	cr_assert_eq(registry_add(back.registry, &(struct version_wish){"m", "v2", 1, 0, {0}}, &found,
				  &ledger.error),
		     0);
}

SnapshotTest(snapshot, lost_version_tells_its_index_and_that_there_is_more)
{
	struct version *gone = fake_ready("m", "v1");

	lose(gone->replicas[0].index.name, segment_name(gone, 0));
	registry_remove_aliases(ledger.registry);
	registry_retire(ledger.registry, gone, NULL);
	back_from_ledger();
	cr_expect_str_eq(
		back_find("m@v1")->error.message,
		"m@v1 was lost: the fd store gave back 1 of its 3 descriptors; missing is the index of "
		"rank 0 on host, and there is more");
}

SnapshotTest(snapshot, version_with_another_descriptor_is_lost)
{
	struct version *gone = fake_ready("m", "v1"), *kept = fake_ready("m", "v2");

	fake_other = segment_name(gone, 0);
	back_from_ledger();
	cr_expect(back.lost == 1 && fake_taken == 3);
	cr_expect_eq(back_find("m@v1")->error.code, -ESTALE);
	cr_expect_str_eq(back_find("m@v1")->error.message,
			 "m@v1 was lost: the fd store gave back 2 of its 3 descriptors; "
			 "segment 0 of rank 0 on host is not what was stored");
	cr_expect(version_id_equal(&back_find("m@v2")->id, &kept->id));
	lose(segment_name(gone, 1), 0);
	back_from_ledger();
	cr_expect_str_eq(back_find("m@v1")->error.message,
			 "m@v1 was lost: the fd store gave back 1 of its 3 descriptors; "
			 "segment 0 of rank 0 on host is not what was stored, and there is more");
	lose(0, 0);
	fake_other = gone->replicas[0].index.name;
	back_from_ledger();
	cr_expect(strstr(back_find("m@v1")->error.message,
			 "; the index of rank 0 on host is not what was stored"));
}

SnapshotTest(snapshot, what_is_no_memory_of_a_gpu_must_be_sealed)
{
	struct version *version = fake_ready("m", "v1");

	back_from_ledger();
	cr_expect(fake_looked == 3 && fake_looked_sealed == 3 && fake_looked_bytes == 2100);
	device_find(&ledger.devices, "host")->kind = &kind_cuda;
	back_from_ledger();
	cr_expect(fake_looked == 3 && fake_looked_sealed == 1, "the index alone");
	cr_expect_eq(back_find("m@v1")->state, version->state);
	device_find(&ledger.devices, "host")->kind = &kind_host;
}

SnapshotTest(snapshot, lost_versions_are_counted_above_what_is_kept)
{
	struct version *version = NULL;
	char tag[16];
	unsigned failed = 0;

	for (int i = 0; i < FAILED_KEPT_MAX + 10; i++) {
		snprintf(tag, sizeof(tag), "v%d", i);
		fake_ready("m", tag);
	}
	for (int i = 0; i < 20; i++) {
		snprintf(tag, sizeof(tag), "at-%d", i);
		cr_assert_eq(ledger_swap("m", tag, ledger_find("m@v3")), 0);
	}
	fake_all_missing = true;
	back_from_ledger();
	cr_expect_eq(back.lost, FAILED_KEPT_MAX + 10);
	while ((version = registry_next_version(back.registry, NULL, version)))
		failed += version->state == VERSION_FAILED;
	cr_expect_eq(failed, FAILED_KEPT_MAX);
	cr_expect_null(back_find("m@v3"), "forgotten, and its aliases with it");
	cr_expect(back_find("m@v10"));
	cr_expect_eq(registry_counts(back.registry).aliases, 0);
}

/* ---- the largest one ---- */

static void make_full(void)
{
	char model[NAME_BYTES_MAX + 1], name[NAME_BYTES_MAX + 1];

	for (unsigned i = 0; i < VERSIONS_MAX; i++) {
		struct version *version;

		snprintf(model, sizeof(model), "%0*u", NAME_BYTES_MAX, i);
		memset(model, 'm', 100);
		version = ledger_building(model, model);
		fake_fill(version, 0, 1);
		version_count(version, &version->replicas[0]);
		fake_store(version);
		ledger_make_ready(version);
		memset(version->error.message, 'e', TEXT_BYTES_MAX);
		memset(version->error.detail, 'd', TEXT_BYTES_MAX);
		version->error.code = -ETOOMANYREFS;
		for (unsigned k = 0; k < PINS_PER_VERSION_MAX; k++) {
			snprintf(name, sizeof(name), "%0*u", NAME_BYTES_MAX, k);
			cr_assert_eq(version_pin(version, name, &ledger.error), 0);
			cr_assert_eq(ledger_swap(model, name, version), 0);
			cr_assert_eq(registry_adopt_before(ledger.registry, version, name, NULL), 0);
		}
		cr_assert_eq(registry_adopt_alias(ledger.registry, version, "previous", UINT64_MAX, NULL), 0);
	}
}

SnapshotTest(snapshot, fullest_registry_fits)
{
	struct registry_counts before, after;
	struct message_writer w;

	fake_next_name = STORE_NAME_MAX - STORE_FDS_MAX;
	make_full();
	fake_put(&w);
	fprintf(stderr, "daemon_snapshot: the fullest registry takes %zu bytes\n", w.buffer.size);
	cr_expect_gt(w.buffer.size, MIB(30));
	message_writer_clear(&w);
	back_from_ledger();
	before = registry_counts(ledger.registry);
	after = registry_counts(back.registry);
	cr_expect_eq(before.fds, STORE_FDS_MAX);
	cr_expect_eq(memcmp(&before, &after, sizeof(before)), 0);
	expect_same_bytes();
}

/* ---- out of memory ---- */

SnapshotTest(snapshot, out_of_memory_is_told_and_leaves_nothing)
{
	const struct snapshot_fds fds = {.look = fake_look, .take = fake_take};
	struct message_writer w;
	unsigned n = 1;
	int r;

	for (int i = 0; i < 20; i++) {
		char tag[16];
		snprintf(tag, sizeof(tag), "v%d", i);
		struct version *version = fake_ready(i % 2 ? "m" : "n", tag);
		version_pin(version, "keep", NULL);
		if (i > 17)
			lose(version->replicas[0].index.name, 0);
	}
	fake_put(&w);
	for (;; n++) {
		back_open();
		fail_alloc_arm(n);
		r = snapshot_take(&(struct snapshot_stored){w.buffer.data, w.buffer.size, 1}, &fds,
				  &back.snapshot, &back.lost, &ledger.error);
		if (!fail_alloc_disarm())
			break;
		cr_assert(r == -ENOMEM && ledger.error.code == -ENOMEM, "%u: %s", n, ledger.error.message);
		cr_assert_eq(fake_taken, 0);
	}
	cr_expect_eq(r, 0);
	cr_expect_gt(n, 150);
	message_writer_clear(&w);
}

LedgerTest(snapshot, out_of_memory_while_it_is_put_is_told_or_harmless)
{
	struct snapshot snapshot;
	struct message_writer w, whole;
	unsigned told = 0, harmless = 0;

	for (int i = 0; i < 10; i++) {
		char tag[16];
		snprintf(tag, sizeof(tag), "v%d", i);
		fake_ready("m", tag);
	}
	snapshot = fake_snapshot();
	fake_put(&whole);
	for (unsigned n = 1;; n++) {
		struct version *version = NULL;
		int r;

		while ((version = registry_next_version(ledger.registry, NULL, version))) {
			free(version->told);
			version->told = NULL;
		}
		message_writer_init(&w, MESSAGE_BODY_MAX);
		fail_alloc_arm(n);
		snapshot_put(&w, &snapshot);
		r = message_finish(&w);
		if (!fail_alloc_disarm())
			break;
		cr_assert(r == 0 || r == -ENOMEM);
		cr_assert(r < 0 || (w.buffer.size == whole.buffer.size &&
				    memcmp(w.buffer.data, whole.buffer.data, w.buffer.size) == 0));
		told += r < 0;
		harmless += r == 0;
		message_writer_clear(&w);
	}
	cr_expect_eq(harmless, 10, "the bytes of one version are not kept");
	cr_expect_gt(told, 2);
	message_writer_clear(&w);
	message_writer_clear(&whole);
}
