#include "snapshot.h"
#include "snapshot_records.h"
#include "../ledger/companion.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static struct kept_fd kept_fd(uint64_t name, uint64_t bytes)
{
	assert(name > 0); /* stored before it is told */
	return (struct kept_fd){name, bytes};
}

/* Returns how many segments the part has. */
static uint32_t list_segments(const struct replica *replica, struct kept_fd segments[PART_SEGMENTS_MAX],
			      uint64_t memfds[PART_SEGMENTS_MAX])
{
	const bool is_here = replica->lies_on == replica->device;

	for (uint32_t i = 0; i < replica->size_count; i++)
		segments[i] = (struct kept_fd){.bytes = replica->sizes[i]};
	for (uint32_t i = 0; i < replica->segment_count; i++) {
		const struct segment *segment = replica->segments[i].segment;

		segments[i] = kept_fd(segment->name, segment->bytes);
		memfds[i] = segment->name;
		if (!is_here)
			segments[i].name = 0;
	}
	for (uint32_t i = 0; i < replica->spare_count; i++)
		memfds[i] = kept_fd(replica->spares[i].segment->name, 0).name;
	return replica->sizes ? replica->size_count : replica->segment_count;
}

struct kept_origins kept_origins_of(const struct version *version, const struct replica *replica,
				    struct kept_origin items[PART_SEGMENTS_MAX])
{
	const uint32_t all = replica->sizes ? replica->size_count : replica->segment_count;
	uint32_t count = 0;

	for (uint32_t i = 0; replica->origins && i < all; i++) {
		const struct origin *origin = &replica->origins[i];

		if (!version_id_equal(&origin->version, &version->id))
			items[count++] = (struct kept_origin){i, &origin->version, origin->segment};
	}
	return (struct kept_origins){count ? items : NULL, count};
}

static void put_part(struct message_writer *w, const struct version *version, const struct replica *replica)
{
	const struct kept_fd index = kept_fd(replica->index.name, replica->index.bytes);
	const bool on_host = replica->spares || (replica->lies_on && replica->lies_on != replica->device);
	struct kept_fd segments[PART_SEGMENTS_MAX];
	struct kept_origin origins[PART_SEGMENTS_MAX];
	uint64_t memfds[PART_SEGMENTS_MAX];
	const uint32_t count = list_segments(replica, segments, memfds);

	record_put_map(w, NULL, &kept_part_record,
		       &(struct kept_part){
			       .rank = replica->rank,
			       .device = replica->device->id,
			       .tensors = replica->tensors,
			       .layout = &replica->layout,
			       .content = &replica->content,
			       .index = &index,
			       .segments = {segments, count},
			       .memfds = {on_host ? memfds : NULL, count},
			       .origins = kept_origins_of(version, replica, origins),
		       });
}

void kept_fixed_put(struct message_writer *w, const struct version *version)
{
	const struct join_params join =
		version->joiners ? joiners_tell(version->joiners) : (struct join_params){0};

	record_put(w, &kept_fixed_record,
		   &(struct kept_fixed){
			   .model = model_name(version->model),
			   .tag = version->tag,
			   .id = &version->id,
			   .publish = &version->publish,
			   .world = version->world,
			   .owner = version->owner,
			   .by_operator = version->by_operator,
			   .cached = version->cache.cached,
			   .companion_of = version_is_companion(version) ? &version->cache.companion_of : NULL,
			   .join = version->joiners ? &join : NULL,
			   .created_ms = version->created_ms,
			   .ready_ms = version->ready_ms,
			   .description = version->description,
		   });
}

/* What changes only with the tier is most of it, and is told anew whenever an alias
 * moves: its bytes are kept (400 of a usual version), which makes a snapshot of 1,000 versions four times as
 * fast. Where there is no memory for them they are made again the next time. */
static void put_fixed(struct message_writer *w, struct version *version)
{
	size_t begin;

	message_begin_map(w, "fixed");
	begin = w->error ? 0 : w->open[w->depth - 1].header;
	kept_fixed_put(w, version);
	message_begin_array(w, "parts");
	for (uint32_t i = 0; i < version->replica_count; i++)
		put_part(w, version, &version->replicas[i]);
	message_end(w);
	message_end(w);
	version->told = w->error ? NULL : malloc(w->buffer.size - begin);
	if (!version->told)
		return;
	version->told_bytes = w->buffer.size - begin;
	memcpy(version->told, w->buffer.data + begin, version->told_bytes);
}

static uint64_t lost_parts(const struct version *version)
{
	uint64_t lost = 0;

	static_assert(PARTS_PER_VERSION_MAX <= 64, "a part has no bit");
	for (uint32_t i = 0; i < version->replica_count; i++)
		lost |= (uint64_t)version->replicas[i].lost << i;
	return lost;
}

static void put_version(struct message_writer *w, struct version *version)
{
	const char *pins[PINS_PER_VERSION_MAX];

	for (uint32_t i = 0; i < version->pin_count; i++)
		pins[i] = version->pins[i];
	message_begin_map(w, NULL);
	record_put(w, &kept_version_record,
		   &(struct kept_version){
			   .state = version_state_name(version->state),
			   .error = version->error.code ? &version->error : NULL,
			   .tainted = version->tainted,
			   .lost_parts = version->tainted ? lost_parts(version) : 0,
			   .forced = version->forced,
			   .force_at_ms = version->forced ? 0 : version->force_at_ms,
			   .expire_at_ms = version->expire_at_ms,
			   .tier = version_is_resident(version) ? NULL : tier_name(version->tier),
			   .restores = version->restores && !version_is_resident(version),
			   .last_used_ms = version->last_used_ms,
			   .stale_leases = version->stale_leases,
			   .pins = {pins, version->pin_count},
		   });
	if (version->revoked_users)
		version_put_revoked(w, "revoked", version);
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
}

/* They name what is ready, and so what was told. */
static void put_aliases(struct message_writer *w, const struct registry *registry)
{
	const struct alias *alias = NULL;
	const char *model;

	message_begin_array(w, "aliases");
	while ((alias = registry_next_alias(registry, NULL, alias, &model))) {
		record_put_map(w, NULL, &kept_alias_record,
			       &(struct kept_alias){model, alias->name, &alias->version->id, alias->generation,
						    alias->before ? &alias->before->id : NULL});
	}
}

/* Those only that do not follow from the versions: the version that made the owner is gone, or none came back. */
static void put_owners(struct message_writer *w, const struct registry *registry)
{
	const struct model *model = NULL;

	message_begin_array(w, "owners");
	while ((model = registry_next_model(registry, model))) {
		const struct model_owner owner = model_owner(model), oldest = model_oldest(model);
		const bool is_told =
			oldest.known ? !model_owner_equal(&owner, &oldest) : model_is_reserved(model);

		if (is_told)
			record_put_map(w, NULL, &kept_owner_record,
				       &(struct kept_owner){model_name(model), owner.uid, owner.by_operator});
	}
}

static void put_claims(struct message_writer *w, const struct claim_table *table)
{
	const struct claim *claim = NULL;

	message_begin_array(w, "claims");
	while ((claim = claim_next(table, claim))) {
		if (claim_is_kept(claim))
			record_put_map(w, NULL, &kept_claim_record,
				       &(struct kept_claim){claim->name.model, claim->name.name, claim->uid});
	}
}

struct kept_device kept_device_of(const struct device *device)
{
	return (struct kept_device){
		.id = device->id,
		.kind = device->kind->name,
		.name = device->name,
		.total = device->total,
		.granularity = device->granularity,
		.context = device->context,
		.lost = device->lost.code ? &device->lost : NULL,
	};
}

static void put_devices(struct message_writer *w, const struct device_table *table)
{
	message_begin_array(w, "devices");
	for (size_t i = 0; i < table->count; i++) {
		const struct kept_device kept = kept_device_of(table->devices[i]);

		record_put_map(w, NULL, &kept_device_record, &kept);
	}
}

static bool region_has_user(const struct region *region, unsigned slot)
{
	return region->users[slot] && region->users[slot]->state == USER_HERE;
}

static void put_region_user(struct message_writer *w, const struct region_user *user)
{
	record_put_map(w, NULL, &kept_region_user_record,
		       &(struct kept_region_user){
			       .use = &user->use,
			       .slot = user->slot,
			       .uid = user->uid,
			       .pid = user->pid,
			       .pidfd = user->stored_as,
			       .command = user->command,
			       .by_operator = user->by_operator,
			       .write = user->write,
			       .owns = user->owns,
			       .since_ms = user->since_ms,
		       });
}

static void put_region(struct message_writer *w, const struct region *region)
{
	static const struct version_id nobody;
	const struct region_user *holder = region_scratch_holder(region);
	const uint64_t holder_slot = holder ? holder->slot : 0;
	const struct version_id *written_by = &region->scratch.written_by;

	message_begin_map(w, NULL);
	record_put(w, &kept_region_record,
		   &(struct kept_region){
			   .id = &region->id,
			   .name = region->name[0] ? region->name : NULL,
			   .device = region->is.device->id,
			   .kind = region->is.kind->name,
			   .uid = region->is.uid,
			   .by_operator = region->is.by_operator,
			   .many_writers = region->is.many_writers,
			   .owned_by_uid = region->is.owned_by_uid,
			   .bytes = region->is.bytes,
			   .memory_bytes = region->is.memory_bytes,
			   .item_bytes = region->is.item_bytes,
			   .ttl_ms = region->is.ttl_ms,
			   .block_bytes = region->is.block_bytes,
			   .chunks = region->is.shape.chunks,
			   .blocks = region->is.shape.blocks,
			   .clear = region->is.clear,
			   .created_ms = region->created_ms,
			   .memory = region->state == REGION_READY ? region->memory_stored_as : 0,
			   .control = region->control_stored_as,
			   .ended = region->end,
			   .ended_by = region->ended_by,
			   .error = region->state == REGION_ENDED ? &region->error : NULL,
			   .holder = holder ? &holder_slot : NULL,
			   .written_by = version_id_equal(written_by, &nobody) ? NULL : written_by,
		   });
	message_begin_array(w, "users");
	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		if (region_has_user(region, slot))
			put_region_user(w, region->users[slot]);
	}
	message_end(w);
	message_end(w);
}

/* One that has ended is told as long as it has users, who still map its memory. */
static bool region_is_told(const struct region *region)
{
	unsigned slot = 0;

	if (region->state != REGION_ENDED)
		return region->state == REGION_READY;
	while (slot < REGION_USERS_MAX && !region_has_user(region, slot))
		slot++;
	return slot < REGION_USERS_MAX;
}

static void put_regions(struct message_writer *w, const struct region_table *table)
{
	message_begin_array(w, "regions");
	for (const struct region *region = table ? table->first : NULL; region; region = region->next) {
		if (region_is_told(region))
			put_region(w, region);
	}
}

/* Where the array of this name ends. */
static void put_unread(struct message_writer *w, const struct snapshot *snapshot, const char *array)
{
	const struct unread_record *record = snapshot->unread ? snapshot->unread->first : NULL;

	for (; record; record = record->next) {
		if (strcmp(record->array, array) == 0)
			message_put_raw(w, NULL, record->data, record->bytes);
	}
	message_end(w);
}

void snapshot_put(struct message_writer *w, const struct snapshot *snapshot)
{
	message_begin_map(w, NULL);
	record_put(w, &kept_state_record,
		   &(struct kept_state){&snapshot->ledger, snapshot->epoch, snapshot->next_name,
					snapshot->scrub_from_ms, snapshot->described});
	put_devices(w, snapshot->devices);
	message_end(w); /* a loader reports those that could not be read */
	put_versions(w, snapshot->registry);
	put_unread(w, snapshot, "versions");
	put_aliases(w, snapshot->registry);
	put_unread(w, snapshot, "aliases");
	put_owners(w, snapshot->registry);
	put_unread(w, snapshot, "owners");
	put_claims(w, snapshot->claims);
	put_unread(w, snapshot, "claims");
	put_regions(w, snapshot->regions);
	put_unread(w, snapshot, "regions");
	message_end(w);
}
