#include "snapshot.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void put_fd(struct message_writer *w, const char *key, uint64_t name, uint64_t bytes)
{
	assert(name > 0); /* stored before it is told */
	message_begin_map(w, key);
	message_put_u64(w, "name", name);
	message_put_u64(w, "bytes", bytes);
	message_end(w);
}

static void put_part(struct message_writer *w, const struct replica *replica)
{
	message_begin_map(w, NULL);
	message_put_u64(w, "rank", replica->rank);
	message_put_text(w, "device", replica->device->id);
	message_put_u64(w, "tensors", replica->tensors);
	message_put_hex128(w, "layout", replica->layout.bytes);
	message_put_hex128(w, "content", replica->content.bytes);
	put_fd(w, "index", replica->index.name, replica->index.bytes);
	message_begin_array(w, "segments");
	for (uint32_t i = 0; i < replica->segment_count; i++) {
		const struct segment *segment = replica->segments[i].segment;

		put_fd(w, NULL, segment->name, segment->bytes);
	}
	message_end(w);
	message_end(w);
}

/* What never changes once a version is ready is most of it, and is told anew whenever an alias
 * moves: its bytes are kept (400 of a usual version), which makes a snapshot of 1,000 versions four times as
 * fast. Where there is no memory for them they are made again the next time. */
static void put_fixed(struct message_writer *w, struct version *version)
{
	size_t begin;

	message_begin_map(w, "fixed");
	begin = w->error ? 0 : w->open[w->depth - 1].header;
	message_put_hex128(w, "id", version->id.bytes);
	message_put_hex128(w, "publish", version->publish.bytes);
	message_put_text(w, "model", model_name(version->model));
	message_put_text(w, "tag", version->tag);
	message_put_u64(w, "world", version->world);
	message_put_u64(w, "owner", version->owner);
	if (version->by_operator)
		message_put_bool(w, "by_operator", true);
	if (version->joiners)
		joiners_put(w, "join", version->joiners);
	message_put_u64(w, "created_ms", version->created_ms);
	message_put_u64(w, "ready_ms", version->ready_ms);
	message_begin_array(w, "parts");
	for (uint32_t i = 0; i < version->replica_count; i++)
		put_part(w, &version->replicas[i]);
	message_end(w);
	message_end(w);
	version->told = w->error ? NULL : malloc(w->buffer.size - begin);
	if (!version->told)
		return;
	version->told_bytes = w->buffer.size - begin;
	memcpy(version->told, w->buffer.data + begin, version->told_bytes);
}

/* Which parts lay on a device that was lost: a bit for each, by position. */
static void put_lost(struct message_writer *w, const struct version *version)
{
	uint64_t lost = 0;

	static_assert(PARTS_PER_VERSION_MAX <= 64, "a part has no bit");
	for (uint32_t i = 0; i < version->replica_count; i++)
		lost |= (uint64_t)version->replicas[i].lost << i;
	if (lost)
		message_put_u64(w, "lost_parts", lost);
}

static void put_version(struct message_writer *w, struct version *version)
{
	message_begin_map(w, NULL);
	message_put_text(w, "state", version_state_name(version->state));
	if (version->error.code)
		message_put_error(w, "error", &version->error);
	if (version->tainted)
		message_put_error(w, "tainted", version->tainted);
	if (version->tainted)
		put_lost(w, version);
	if (version->forced)
		message_put_bool(w, "forced", true);
	else if (version->force_at_ms)
		message_put_u64(w, "force_at_ms", version->force_at_ms);
	if (version->revoked_users)
		version_put_revoked(w, "revoked", version);
	message_begin_array(w, "pins");
	for (uint32_t i = 0; i < version->pin_count; i++)
		message_put_text(w, NULL, version->pins[i]);
	message_end(w);
	if (version->told)
		message_put_raw(w, "fixed", version->told, version->told_bytes);
	else
		put_fixed(w, version);
	message_end(w);
}

/* The order of registry_next_version: models by name, versions by age. */
static void put_versions(struct message_writer *w, const struct registry *registry)
{
	struct version *version = NULL;

	message_begin_array(w, "versions");
	while ((version = registry_next_version(registry, NULL, version))) {
		bool told = version->state == VERSION_READY || version->state == VERSION_RETIRING;

		if (told && !version->freeing)
			put_version(w, version);
	}
	message_end(w);
}

/* They name what is ready, and so what was told. */
static void put_aliases(struct message_writer *w, const struct registry *registry)
{
	const struct alias *alias = NULL;
	const char *model;

	message_begin_array(w, "aliases");
	while ((alias = registry_next_alias(registry, NULL, alias, &model))) {
		message_begin_map(w, NULL);
		message_put_text(w, "model", model);
		message_put_text(w, "name", alias->name);
		message_put_hex128(w, "version", alias->version->id.bytes);
		message_put_u64(w, "generation", alias->generation);
		message_end(w);
	}
	message_end(w);
}

static bool is_same(const struct model_owner *a, const struct model_owner *b)
{
	return a->known == b->known && a->by_operator == b->by_operator && a->uid == b->uid;
}

/* Those only that do not follow from the versions: the version that made the owner is gone. */
static void put_owners(struct message_writer *w, const struct registry *registry)
{
	const struct model *last = NULL;
	struct version *version = NULL;

	message_begin_array(w, "owners");
	while ((version = registry_next_version(registry, NULL, version))) {
		struct model_owner owner = model_owner(version->model), oldest;

		if (version->model == last || !owner.known)
			continue;
		last = version->model;
		oldest = model_oldest(last);
		if (!oldest.known || is_same(&owner, &oldest))
			continue;
		message_begin_map(w, NULL);
		message_put_text(w, "model", model_name(last));
		message_put_u64(w, "uid", owner.uid);
		message_put_bool(w, "by_operator", owner.by_operator);
		message_end(w);
	}
	message_end(w);
}

static void put_claims(struct message_writer *w, const struct claim_table *table)
{
	const struct claim *claim = NULL;

	message_begin_array(w, "claims");
	while ((claim = claim_next(table, claim))) {
		if (!claim_is_kept(claim))
			continue;
		message_begin_map(w, NULL);
		message_put_text(w, "model", claim->name.model);
		message_put_text(w, "tag", claim->name.name);
		message_put_u64(w, "uid", claim->uid);
		message_end(w);
	}
	message_end(w);
}

static void put_devices(struct message_writer *w, const struct device_table *table)
{
	message_begin_array(w, "devices");
	for (size_t i = 0; i < table->count; i++) {
		const struct device *device = table->devices[i];

		message_begin_map(w, NULL);
		message_put_text(w, "id", device->id);
		message_put_text(w, "kind", device->kind->name);
		message_put_text(w, "name", device->name);
		message_put_u64(w, "total", device->total);
		message_put_u64(w, "granularity", device->granularity);
		message_put_u64(w, "context", device->context);
		if (device->lost.code)
			message_put_error(w, "lost", &device->lost);
		message_end(w);
	}
	message_end(w);
}

void snapshot_put(struct message_writer *w, const struct snapshot *snapshot)
{
	message_begin_map(w, NULL);
	message_put_hex128(w, "ledger", snapshot->ledger.bytes);
	message_put_u64(w, "epoch", snapshot->epoch);
	message_put_u64(w, "next_name", snapshot->next_name);
	if (snapshot->scrub_from_ms)
		message_put_u64(w, "scrub_from_ms", snapshot->scrub_from_ms);
	put_devices(w, snapshot->devices);
	put_versions(w, snapshot->registry);
	put_aliases(w, snapshot->registry);
	put_owners(w, snapshot->registry);
	put_claims(w, snapshot->claims);
	message_end(w);
}
