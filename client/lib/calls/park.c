/* A mapping gives its memory back for a while, and keeps its addresses. */
#include "../request/lease.h"
#include "../mapping/attach.h"

#include <errno.h>
#include <string.h>

static int check_parks(const struct gpuwm_mapping *mapping, struct error *error)
{
	const struct mapped_part *part = mapping->part;
	int r = mapped_part_check_moves(part, error);

	if (r == 0 && part->device.private_writes)
		r = error_set(error, -ENOTSUP, "let it go, and attach again later",
			      "%s was attached with private writes, which would be lost", part->label);
	if (r == 0 && !mapping->lease)
		r = error_set(error, -ENOTSUP, "let it go, and publish it again later",
			      "the mapping has no lease: no other process has its memory");
	if (r == 0)
		r = mapped_part_check(part, error);
	return r < 0 ? r : lease_check(mapping->client, mapping->lease, error);
}

int gpuwm_park(struct gpuwm_mapping *mapping, uint64_t room)
{
	struct error error;
	int r = fork_check(&mapping->hook, &error);

	if (r == 0 && mapping->parked)
		return 0;
	if (r == 0)
		r = check_parks(mapping, &error);
	if (r == 0)
		r = mapped_part_park(mapping->part, mapping->client, mapping->lease, room, &error);
	if (r < 0)
		return client_fail(&error);
	mapping->parked = true;
	return 0;
}

/* Whether it is the memory that the part had. */
static int check_granted(const struct gpuwm_mapping *mapping, struct grant *grant, struct error *error)
{
	struct index_map index;
	int r = grant_describe(grant, &index, error);

	if (r < 0)
		return r;
	index_map_close(&index);
	if (strcmp(grant->version.id, mapping->version.id) == 0)
		return 0;
	return error_set(error, -EPROTO, NULL, "unpark: another version than %s", mapping->part->label);
}

static int unpark(struct gpuwm_mapping *mapping, const struct unpark_wish *wish, struct error *error)
{
	const uint64_t kept = gpuwm_mapping_room(mapping);
	struct error unused;
	struct grant grant;
	int r = lease_unpark(mapping->client, mapping->lease, wish, &grant, error);

	if (r < 0)
		return r;
	r = check_granted(mapping, &grant, error);
	if (r == 0 && mapping->parked)
		r = mapped_part_unpark(mapping->part, &grant, error);
	grant_close_fds(&grant);
	if (r < 0 && mapping->parked)
		lease_park(mapping->client, mapping->lease, kept, &unused);
	return r;
}

/* Whether there is nothing to ask for. Others of a group may wait for this one. */
static bool has_all(const struct gpuwm_mapping *mapping, const struct unpark_wish *wish)
{
	return !mapping->parked && !wish->group &&
	       (wish->room == GPUWM_ROOM_AS_BEFORE || wish->room == gpuwm_mapping_room(mapping));
}

static int mapping_unpark(struct gpuwm_mapping *mapping, const struct unpark_wish *wish)
{
	struct error error;
	int r = fork_check(&mapping->hook, &error);

	if (r == 0 && has_all(mapping, wish))
		return 0;
	if (r == 0)
		r = unpark(mapping, wish, &error);
	if (r < 0)
		return client_fail(&error);
	mapping->parked = false;
	return 0;
}

int gpuwm_unpark(struct gpuwm_mapping *mapping, uint64_t room, int64_t wait_ms)
{
	return mapping_unpark(mapping, &(struct unpark_wish){.room = room, .wait_ms = wait_ms});
}

int gpuwm_unpark_together(struct gpuwm_mapping *mapping, const char *group, uint32_t mappings, uint64_t room,
			  int64_t wait_ms)
{
	return mapping_unpark(
		mapping, &(struct unpark_wish){
				 .room = room, .group = group, .group_leases = mappings, .wait_ms = wait_ms});
}

uint64_t gpuwm_mapping_room(const struct gpuwm_mapping *mapping)
{
	return mapping->lease ? lease_room(mapping->client, mapping->lease) : 0;
}

bool gpuwm_mapping_parked(const struct gpuwm_mapping *mapping)
{
	return mapping->parked;
}
