#include "daemon/snapshot.h"
#include "daemon_ledger.h"

static uint64_t next_name;

/* A ready version with one part of two segments, as it is after it was stored. */
static struct version *stored(const char *model, const char *tag)
{
	struct version *version = ledger_building(model, tag);
	struct replica *replica = &version->replicas[0];

	replica->index = (struct held_fd){.fd = 7, .bytes = 100, .name = next_name++};
	replica->segments = calloc(2, sizeof(*replica->segments));
	replica->segment_count = 2;
	for (int i = 0; i < 2; i++)
		replica->segments[i] = (struct held_fd){.fd = 7, .bytes = 1000, .name = next_name++};
	replica->bytes = 2000;
	budget_shrink(&replica->charge, 2000);
	ledger_make_ready(version);
	return version;
}

static void put(struct message_writer *w, struct registry *registry, struct device_table *devices)
{
	struct snapshot snapshot = {.ledger = {{1, 2, 3}},
				    .epoch = 4,
				    .next_name = next_name,
				    .registry = registry,
				    .devices = devices};

	message_writer_init(w, MESSAGE_BODY_MAX);
	snapshot_put(w, &snapshot);
	cr_assert_eq(message_finish(w), 0);
}

static bool have(void *data, uint64_t name)
{
	(void)data;
	return name > 0;
}

static int take(void *data, uint64_t name)
{
	(void)data;
	return (int)name + 1000;
}

LedgerTest(snapshot, comes_back_as_it_was)
{
	struct device_table devices = {0};
	struct snapshot back = {.devices = &devices, .registry = registry_new()};
	struct snapshot_fds fds = {.have = have, .take = take};
	struct message_writer before, after;
	uint64_t lost = 9;

	next_name = 1;
	stored("m", "v1");
	ledger_swap("m", "current", stored("m", "v2"));
	cr_assert_eq(version_pin(stored("n", "v1"), "keep", &ledger.error), 0);
	put(&before, ledger.registry, &ledger.devices);
	cr_assert_eq(
		snapshot_take(before.buffer.data, before.buffer.size, 1, &fds, &back, &lost, &ledger.error), 0,
		"%s", ledger.error.message);
	cr_expect_eq(lost, 0);
	cr_expect(back.epoch == 4 && back.next_name == next_name && back.ledger.bytes[1] == 2);
	put(&after, back.registry, back.devices);
	cr_assert_eq(before.buffer.size, after.buffer.size);
	cr_expect_eq(memcmp(before.buffer.data, after.buffer.data, before.buffer.size), 0);
	message_writer_clear(&before);
	message_writer_clear(&after);
	registry_free(back.registry);
	device_table_clear(&devices);
}
