/* What the tests of snapshots share: an fd store of numbers, putting and taking. */
#ifndef GPUWM_TESTS_DAEMON_SNAPSHOT_H
#define GPUWM_TESTS_DAEMON_SNAPSHOT_H

#include "daemon/ledger/registry_internal.h"
#include "daemon/restart/snapshot.h"
#include "daemon_ledger.h"

/* Descriptors that were never opened: the number of a name. */
#define FAKE_FD(name) ((int)(name) + 100000)

static uint64_t fake_next_name = 1;
static uint64_t fake_scrub_from_ms;
static uint64_t fake_missing[8]; /* names that the store lost */
static uint64_t fake_other; /* a name with something else */
static uint64_t fake_taken; /* how many were taken */
static uint64_t fake_looked, fake_looked_sealed, fake_looked_bytes;
static bool fake_all_missing;

static inline bool fake_have(void *data, uint64_t name)
{
	(void)data;
	for (size_t i = 0; i < sizeof(fake_missing) / sizeof(fake_missing[0]); i++) {
		if (fake_missing[i] == name)
			return false;
	}
	return !fake_all_missing;
}

static inline int fake_look(void *data, uint64_t name, bool sealed, uint64_t bytes)
{
	fake_looked++;
	fake_looked_sealed += sealed;
	fake_looked_bytes += bytes;
	if (!fake_have(data, name))
		return SNAPSHOT_FD_MISSING;
	return name == fake_other ? SNAPSHOT_FD_OTHER : SNAPSHOT_FD_HERE;
}

static inline int fake_take(void *data, uint64_t name)
{
	cr_assert(fake_have(data, name));
	fake_taken++;
	return FAKE_FD(name);
}

/* Gives names to what a version's parts hold, as the fd store's client does before it is ready. */
static inline void fake_store(struct version *version)
{
	for (uint32_t i = 0; i < version->replica_count; i++) {
		struct replica *replica = &version->replicas[i];

		if (replica->index.name)
			continue;
		replica->index.name = fake_next_name++;
		for (uint32_t k = 0; k < replica->segment_count; k++)
			replica->segments[k].name = fake_next_name++;
	}
}

/* A part with `count` segments of 1,000 bytes, checked. */
static inline void fake_fill(struct replica *replica, uint32_t count)
{
	replica->index = (struct held_fd){.fd = 7, .bytes = 100};
	replica->segments = calloc(count, sizeof(*replica->segments));
	replica->segment_count = count;
	for (uint32_t i = 0; i < count; i++)
		replica->segments[i] = (struct held_fd){.fd = 7, .bytes = 1000};
	replica->bytes = 1000 * count;
	replica->tensors = 12;
	replica->layout.bytes[0] = 1;
	replica->content.bytes[0] = 2;
	budget_shrink(&replica->charge, replica->bytes);
	replica->checked = true;
}

/* Also counts it. */
static inline struct version *fake_ready(const char *model, const char *tag)
{
	struct version *version = ledger_building(model, tag);

	fake_fill(&version->replicas[0], 2);
	version_count(version, &version->replicas[0]);
	fake_store(version);
	ledger_make_ready(version);
	return version;
}

static inline struct snapshot fake_snapshot(void)
{
	return (struct snapshot){.ledger = {{1, 2, 3}},
				 .epoch = 4,
				 .next_name = fake_next_name,
				 .scrub_from_ms = fake_scrub_from_ms,
				 .registry = ledger.registry,
				 .devices = &ledger.devices,
				 .claims = ledger.claims};
}

/* The ledger as bytes. */
static inline void fake_put(struct message_writer *w)
{
	struct snapshot snapshot = fake_snapshot();

	message_writer_init(w, MESSAGE_BODY_MAX);
	snapshot_put(w, &snapshot);
	cr_assert_eq(message_finish(w), 0);
}

/* What came back of them. */
struct back {
	struct device_table devices;
	struct snapshot snapshot;
	struct registry *registry;
	struct claim_table *claims;
	uint64_t lost;
};

static inline int back_take(struct back *back, const void *data, size_t bytes)
{
	const struct snapshot_fds fds = {.look = fake_look, .take = fake_take};

	back->registry = registry_new();
	back->claims = claim_table_new();
	back->snapshot = (struct snapshot){.registry = back->registry,
					   .devices = &back->devices,
					   .claims = back->claims,
					   .quota = ledger.quota};
	back->lost = 0;
	fake_taken = fake_looked = fake_looked_sealed = fake_looked_bytes = 0;
	ledger.error = (struct error){0};
	return snapshot_take(data, bytes, 1, &fds, &back->snapshot, &back->lost, &ledger.error);
}

static inline void back_clear(struct back *back)
{
	back->registry = registry_free(back->registry);
	back->claims = claim_table_free(back->claims);
	for (size_t i = 0; i < back->devices.count; i++)
		cr_expect_eq(back->devices.devices[i]->used, 0);
	device_table_clear(&back->devices);
}

/* The whole way: into bytes and out of them. */
static inline void back_from_ledger(struct back *back)
{
	struct message_writer w;

	fake_put(&w);
	cr_assert_eq(back_take(back, w.buffer.data, w.buffer.size), 0, "%s", ledger.error.message);
	message_writer_clear(&w);
}

/* What a reference names there; NULL. */
static inline struct version *back_find(const struct back *back, const char *text)
{
	struct version *version = NULL;
	uint64_t generation;
	const char *why;
	struct ref ref;

	cr_assert_eq(ref_parse(text, &ref, &why), 0);
	registry_find(back->registry, &ref, &version, &generation, &ledger.error);
	return version;
}

#endif
