#include "snapshot.h"

uint64_t fake_next_name = 1;
uint64_t fake_scrub_from_ms;
uint64_t fake_missing[8];
uint64_t fake_other;
uint64_t fake_taken;
uint64_t fake_looked, fake_looked_sealed, fake_looked_bytes;
bool fake_all_missing;

static bool fake_have(void *data, uint64_t name)
{
	(void)data;
	for (size_t i = 0; i < sizeof(fake_missing) / sizeof(fake_missing[0]); i++) {
		if (fake_missing[i] == name)
			return false;
	}
	return !fake_all_missing;
}

int fake_look(void *data, uint64_t name, int seals, uint64_t bytes)
{
	fake_looked++;
	fake_looked_sealed += seals != 0;
	fake_looked_bytes += bytes;
	if (!fake_have(data, name))
		return SNAPSHOT_FD_MISSING;
	return name == fake_other ? SNAPSHOT_FD_OTHER : SNAPSHOT_FD_HERE;
}

int fake_take(void *data, uint64_t name)
{
	cr_assert(fake_have(data, name));
	fake_taken++;
	return FAKE_FD(name);
}

void fake_store(struct version *version)
{
	for (uint32_t i = 0; i < version->replica_count; i++) {
		struct replica *replica = &version->replicas[i];

		if (replica->index.name)
			continue;
		replica->index.name = fake_next_name++;
		for (uint32_t k = 0; k < replica->segment_count; k++) {
			struct segment *segment = replica->segments[k].segment;

			segment->name = segment->name ? segment->name : fake_next_name++;
		}
	}
}

void fake_fill(struct version *version, uint32_t position, uint32_t count)
{
	struct replica *replica = &version->replicas[position];

	replica->index = (struct held_fd){.fd = 7, .bytes = 100};
	replica->segments = calloc(count, sizeof(*replica->segments));
	replica->segment_count = count;
	for (uint32_t i = 0; i < count; i++) {
		struct segment *segment = segment_new(7, 1000, 0);

		budget_split(&replica->charge, 1000, &segment->charge);
		segment_hold(&replica->segments[i], segment, version);
	}
	replica->bytes = 1000 * count;
	replica->tensors = 12;
	replica->layout.bytes[0] = 1;
	replica->content.bytes[0] = 2;
	budget_release(&replica->charge);
	replica->checked = true;
}

struct version *fake_ready(const char *model, const char *tag)
{
	struct version *version = ledger_building(model, tag);

	fake_fill(version, 0, 2);
	version_count(version, &version->replicas[0]);
	fake_store(version);
	ledger_make_ready(version);
	return version;
}

struct snapshot fake_snapshot(void)
{
	return (struct snapshot){.ledger = {{1, 2, 3}},
				 .epoch = 4,
				 .next_name = fake_next_name,
				 .scrub_from_ms = fake_scrub_from_ms,
				 .registry = ledger.registry,
				 .devices = &ledger.devices,
				 .claims = ledger.claims};
}

void fake_put(struct message_writer *w)
{
	struct snapshot snapshot = fake_snapshot();

	message_writer_init(w, MESSAGE_BODY_MAX);
	snapshot_put(w, &snapshot);
	cr_assert_eq(message_finish(w), 0);
}

struct back back;

void back_open(void)
{
	if (back.registry)
		back_clear();
	back.registry = registry_new();
	back.claims = claim_table_new();
	back.snapshot = (struct snapshot){.registry = back.registry,
					  .devices = &back.devices,
					  .claims = back.claims,
					  .quota = ledger.quota,
					  .unread = &back.unread};
	back.lost = 0;
	fake_taken = fake_looked = fake_looked_sealed = fake_looked_bytes = 0;
	ledger.error = (struct error){0};
}

void back_clear(void)
{
	back.registry = registry_free(back.registry);
	back.claims = claim_table_free(back.claims);
	for (size_t i = 0; i < back.devices.count; i++)
		cr_expect_eq(back.devices.devices[i]->used, 0);
	device_table_clear(&back.devices);
	unread_records_clear(&back.unread);
}

int back_take(const void *data, size_t bytes)
{
	const struct snapshot_fds fds = {.look = fake_look, .take = fake_take};

	back_open();
	return snapshot_take(&(struct snapshot_stored){data, bytes, 1}, &fds, &back.snapshot, &back.lost,
			     &ledger.error);
}

void back_from_ledger(void)
{
	struct message_writer w;

	fake_put(&w);
	cr_assert_eq(back_take(w.buffer.data, w.buffer.size), 0, "%s", ledger.error.message);
	message_writer_clear(&w);
}

struct version *back_find(const char *text)
{
	struct version *version = NULL;
	uint64_t generation;
	const char *why;
	struct ref ref;

	cr_assert_eq(ref_parse(text, &ref, &why), 0);
	registry_find(back.registry, &ref, &version, &generation, &ledger.error);
	return version;
}

void expect_same_bytes(void)
{
	struct message_writer before, after;

	fake_put(&before);
	message_writer_init(&after, MESSAGE_BODY_MAX);
	snapshot_put(&after, &back.snapshot);
	cr_assert_eq(message_finish(&after), 0);
	cr_expect_eq(before.buffer.size, after.buffer.size);
	cr_expect_eq(memcmp(before.buffer.data, after.buffer.data, after.buffer.size), 0);
	message_writer_clear(&before);
	message_writer_clear(&after);
}
