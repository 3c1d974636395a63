/* Ids of kicked leases: a client that lost its connection, or gpuwmd, does not get these again. */
#include "registry_internal.h"

#include <errno.h>
#include <stdlib.h>

struct revoked_id {
	uint64_t id;
	struct revoked_id *next; /* of its version */
	UT_hash_handle hh;
};

static struct revoked_id *find(const struct registry *registry, uint64_t id)
{
	struct revoked_id *found;

	HASH_FIND(hh, registry->revoked_ids, &id, sizeof(id), found);
	return found;
}

bool lease_is_revoked(const struct registry *registry, uint64_t id)
{
	return find(registry, id) != NULL;
}

int version_revoke_id(struct version *version, uint64_t id, struct error *error)
{
	struct registry *registry = version->model->registry;
	struct revoked_id *revoked;

	if (find(registry, id))
		return error_set(error, -EEXIST, NULL, "lease %llu was revoked before", (unsigned long long)id);
	if (registry->counts.revoked_ids == REVOKED_IDS_MAX)
		return error_set(error, -EDQUOT,
				 "ids go with their versions: retire versions, by force if need be",
				 "gpuwmd remembers %d kicked leases, the most that it does", REVOKED_IDS_MAX);
	revoked = calloc(1, sizeof(*revoked));
	if (!revoked)
		return out_of_memory(error);
	revoked->id = id;
	HASH_ADD(hh, registry->revoked_ids, id, sizeof(id), revoked);
	if (!revoked->hh.tbl) {
		free(revoked);
		return out_of_memory(error);
	}
	revoked->next = version->revoked_ids;
	version->revoked_ids = revoked;
	registry->counts.revoked_ids++;
	return 0;
}

const struct revoked_id *version_next_revoked(const struct version *version, const struct revoked_id *after,
					      uint64_t *ret_id)
{
	const struct revoked_id *next = after ? after->next : version->revoked_ids;

	if (next)
		*ret_id = next->id;
	return next;
}

void version_forget_revoked(struct version *version)
{
	struct registry *registry = version->model->registry;
	struct revoked_id *revoked = version->revoked_ids, *next;

	for (; revoked; revoked = next) {
		next = revoked->next;
		HASH_DEL(registry->revoked_ids, revoked);
		registry->counts.revoked_ids--;
		free(revoked);
	}
	version->revoked_ids = NULL;
}
