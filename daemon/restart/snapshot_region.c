/* The regions of a state, with their users and descriptors. */
#include "snapshot_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SEALS_SIZE (F_SEAL_GROW | F_SEAL_SHRINK)

/* A region of the map. */
struct taken_region {
	struct kept_region kept;
	struct region_wish wish;
	struct kept_region_user users[REGION_USERS_MAX];
	uint32_t user_count;
	bool has_control; /* the control memory is there */
	uint32_t missing; /* descriptors that are not there, or not what was stored */
	int unknown; /* -errno of one that could not be looked at; 0: there is none */
};

/* Finds its kind. A region of the state is what a request may have asked for. */
static int take_kind(struct taken_region *region, struct error *error)
{
	const struct kept_region *kept = &region->kept;
	const struct region_create_params params = {
		.device = kept->device,
		.kind = kept->kind,
		.writers = kept->many_writers ? REGION_WRITERS_MANY : REGION_WRITERS_ONE,
		.owner = kept->owned_by_uid ? REGION_OWNER_UID : REGION_OWNER_PROCESS,
		.bytes = kept->bytes,
		.chunks = kept->chunks,
		.item_bytes = kept->item_bytes,
		.ttl_ms = kept->ttl_ms,
		.blocks = kept->blocks,
		.block_bytes = kept->block_bytes,
		.clear = kept->clear,
	};
	int r;

	if (kept->name && name_wrong(kept->name))
		return error_set(error, -EINVAL, NULL, "its name %s", name_wrong(kept->name));
	if (!region->wish.device)
		return error_set(error, -ENODEV, NULL, "no device %s", kept->device);
	r = region_kind_find(kept->kind, &region->wish.kind, error);
	if (r == 0)
		r = region_create_check(&params, error);
	if (r < 0)
		return r;
	if (kept->bytes > kept->memory_bytes)
		return error_set(error, -EINVAL, NULL, "it has %llu bytes, and its memory %llu",
				 (unsigned long long)kept->bytes, (unsigned long long)kept->memory_bytes);
	if ((kept->error != NULL) != (kept->ended != CONTROL_OPEN) || (kept->error && kept->memory))
		return error_set(error, -EINVAL, NULL, "its end is %llu, and its memory %llu",
				 (unsigned long long)kept->ended, (unsigned long long)kept->memory);
	return 0;
}

static void set_wish(const struct taking *t, struct taken_region *region)
{
	const struct kept_region *kept = &region->kept;

	region->wish = (struct region_wish){
		.name = kept->name,
		.device = device_find(t->into->devices, kept->device),
		.uid = (uid_t)kept->uid,
		.by_operator = kept->by_operator,
		.clear = kept->clear,
		.many_writers = kept->many_writers,
		.owned_by_uid = kept->owned_by_uid,
		.bytes = kept->bytes,
		.memory_bytes = kept->memory_bytes,
		.item_bytes = kept->item_bytes,
		.ttl_ms = kept->ttl_ms,
		.block_bytes = kept->block_bytes,
		.shape = {.chunks = (uint32_t)kept->chunks, .blocks = (uint32_t)kept->blocks},
	};
}

/* Notes the name of a descriptor, and looks whether it is there. */
static int taken_region_look_at(struct taking *t, struct taken_region *region, uint64_t name, int seals,
				uint64_t bytes, struct error *error)
{
	int found, r = taking_index(t, name, error);

	if (r < 0)
		return r;
	found = t->fds->look(t->fds->data, name, seals, bytes);
	if (found < 0)
		region->unknown = found;
	else
		region->missing += found != SNAPSHOT_FD_HERE;
	return 0;
}

static int look_at_all(struct taking *t, struct taken_region *region, struct error *error)
{
	const struct kept_region *kept = &region->kept;
	const bool can_look = region->wish.device->kind->can_look;
	const uint64_t control = control_bytes(region->wish.shape);
	int r = taken_region_look_at(t, region, kept->control, SEALS_SIZE | F_SEAL_SEAL, control, error);

	region->has_control = region->missing == 0;
	if (r == 0 && !kept->error)
		r = taken_region_look_at(t, region, kept->memory, can_look ? SEALS_SIZE : 0, kept->memory_bytes,
					 error);
	for (uint32_t i = 0; r == 0 && i < region->user_count; i++)
		r = taken_region_look_at(t, region, region->users[i].pidfd, 0, 0, error);
	if (r == 0 && region->unknown)
		return error_set(
			error, -EAGAIN,
			"gpuwmd ends and lets nothing go, so that its next start finds all of it again",
			"a descriptor of the region could not be looked at: %s", strerror(-region->unknown));
	return r;
}

static int read_users(struct taking *t, const msgpack_object *o, struct taken_region *region,
		      struct error *error)
{
	const msgpack_object *array;
	struct fields f;
	uint32_t count;
	int r = 0;

	fields_of(&f, o);
	array = fields_array(&f, "users", &count);
	if (f.error.code) {
		*error = f.error;
		return error->code;
	}
	if (count > REGION_USERS_MAX)
		return error_set(error, -EDQUOT, NULL, "%u users, the most is %d", count, REGION_USERS_MAX);
	for (uint32_t i = 0; r == 0 && i < count; i++)
		r = record_read_map(&kept_region_user_record, &array[i], t->zone, &region->users[i], error);
	region->user_count = count;
	return r;
}

static int read_region(struct taking *t, const msgpack_object *o, struct taken_region *region,
		       struct place *place, struct error *error)
{
	int r = record_read_map(&kept_region_record, o, t->zone, &region->kept, error);

	if (r < 0)
		return r;
	snprintf(place->what, sizeof(place->what), " (%s)", region->kept.name ? region->kept.name : "");
	set_wish(t, region);
	r = take_kind(region, error);
	if (r == 0)
		r = read_users(t, o, region, error);
	return r < 0 ? r : look_at_all(t, region, error);
}

static int adopt_user(struct taking *t, struct region *region, const struct kept_region_user *kept,
		      struct error *error)
{
	struct region_user like = {
		.slot = (unsigned)kept->slot,
		.use = *kept->use,
		.uid = (uid_t)kept->uid,
		.pid = kept->pid,
		.pidfd = -1,
		.stored_as = kept->pidfd,
		.write = kept->write,
		.owns = kept->owns,
		.by_operator = kept->by_operator,
		.state = USER_HERE,
		.rooms = 1,
		.since_ms = kept->since_ms,
	};
	struct region_user *user;
	int r;

	snprintf(like.command, sizeof(like.command), "%.*s", CONTROL_COMMAND_BYTES - 1, kept->command);
	r = region_user_adopt(t->into->regions, region, &like, &user, error);
	if (r == 0)
		registry_adopt_fds(t->into->registry, 1);
	return r < 0 ? r : region_user_charge(user, t->into->quota, true, error);
}

static int adopt_scratch(struct region *region, const struct kept_region *kept, struct error *error)
{
	if (kept->written_by)
		region->scratch.written_by = *kept->written_by;
	if (!kept->holder)
		return 0;
	if (!region->is.kind->has_holder || *kept->holder >= REGION_USERS_MAX || !region->users[*kept->holder])
		return error_set(error, -EINVAL, NULL,
				 "its memory is held by the slot %llu, of which there is no user",
				 (unsigned long long)*kept->holder);
	region_scratch_give(region->users[*kept->holder]);
	return 0;
}

/* The memory of a region that has ended is in no store. */
static unsigned own_fds(const struct taken_region *taken)
{
	return taken->kept.error ? 1 : 2;
}

static int adopt_whole(struct taking *t, struct region *region, const struct taken_region *taken,
		       struct error *error)
{
	int r;

	region->state = REGION_READY;
	region->memory_stored_as = taken->kept.memory;
	region->control_stored_as = taken->kept.control;
	region->rooms = own_fds(taken);
	region->had_users = UINT32_MAX; /* its chunks may name those who went before */
	registry_adopt_fds(t->into->registry, region->rooms);
	if (taken->kept.error)
		region_end(region, (enum control_end)taken->kept.ended, (unsigned)taken->kept.ended_by,
			   taken->kept.error);
	r = region_charge(region, t->into->quota, true, error);
	for (uint32_t i = 0; r == 0 && i < taken->user_count; i++)
		r = adopt_user(t, region, &taken->users[i], error);
	region_repay(region);
	return r < 0 ? r : adopt_scratch(region, &taken->kept, error);
}

/* Those who use it learn by the control memory, where that is there, that it has ended. */
static void adopt_lost(struct taking *t, struct region *region, const struct taken_region *taken)
{
	const unsigned count = own_fds(taken) + taken->user_count;
	struct error lost;

	error_set(&lost, -ESTALE, "make it again",
		  "the region %s was lost: the fd store gave back %u of its %u descriptors",
		  taken->wish.name ? taken->wish.name : "without a name", count - taken->missing, count);
	region_end(region, CONTROL_REMOVED, 0, &lost);
	if (!taken->has_control)
		return;
	region->control_stored_as = taken->kept.control;
	region->rooms = 1;
	registry_adopt_fds(t->into->registry, 1);
}

/* None of its descriptors was taken. fds: how many were counted before. */
static void forget_region(struct taking *t, struct region *region, uint64_t fds)
{
	struct registry *registry = t->into->registry;

	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		if (region->users[slot])
			region_user_free(t->into->regions, region->users[slot]);
	}
	region_free(t->into->regions, region);
	registry_give_fds(registry, registry_fds(registry) - fds);
}

static int adopt_region(struct taking *t, const struct taken_region *taken, struct error *error)
{
	const uint64_t fds = registry_fds(t->into->registry);
	struct region *region;
	int r = region_adopt(t->into->regions, &taken->wish, taken->kept.id, &region, error);

	if (r < 0)
		return r;
	region->created_ms = taken->kept.created_ms;
	if (taken->missing == 0) {
		r = adopt_whole(t, region, taken, error);
		if (r < 0 && r != -ENOMEM)
			forget_region(t, region, fds);
		return r;
	}
	adopt_lost(t, region, taken);
	return 0;
}

int take_region(struct taking *t, const msgpack_object *o, struct place *place)
{
	struct taken_region region = {0};
	struct error why;
	int r = read_region(t, o, &region, place, &why);

	if (r == 0)
		r = adopt_region(t, &region, &why);
	return r < 0 ? taking_wrong(t, place, &why) : 0;
}

void take_region_fds(const struct taking *t)
{
	const struct snapshot_fds *fds = t->fds;

	for (struct region *region = t->into->regions ? t->into->regions->first : NULL; region;
	     region = region->next) {
		if (region->memory_stored_as)
			region->memory_fd = fds->take(fds->data, region->memory_stored_as);
		if (region->control_stored_as)
			region->control_fd = fds->take(fds->data, region->control_stored_as);
		for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
			struct region_user *user = region->users[slot];

			if (user)
				user->pidfd = fds->take(fds->data, user->stored_as);
		}
	}
}
