#include "registry_internal.h"
#include "../../base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Leases are many and small, their ids a sequence: a table of chains through the leases
 * themselves costs 16 bytes a lease, and its lower bits spread the ids evenly. */
#define BUCKETS_FIRST 64

static struct lease **bucket_of(const struct registry *registry, uint64_t id)
{
	return &registry->lease_buckets[id & (registry->lease_bucket_count - 1)];
}

static void bucket_put(const struct registry *registry, struct lease *lease)
{
	struct lease **bucket = bucket_of(registry, lease->id);

	lease->next_of_bucket = *bucket;
	*bucket = lease;
}

/* Room for one more. Where a larger table can't be had, longer chains do. */
static int table_grow(struct registry *registry)
{
	uint64_t count = registry->lease_bucket_count;
	struct lease **old = registry->lease_buckets, **buckets;

	if (registry->counts.leases < count)
		return 0;
	registry->lease_bucket_count = count ? count * 2 : BUCKETS_FIRST;
	buckets = calloc(registry->lease_bucket_count, sizeof(struct lease *));
	if (!buckets) {
		registry->lease_bucket_count = count;
		return count ? 0 : -ENOMEM;
	}
	registry->lease_buckets = buckets;
	for (uint64_t i = 0; i < count; i++) {
		for (struct lease *lease = old[i], *next; lease; lease = next) {
			next = lease->next_of_bucket;
			bucket_put(registry, lease);
		}
	}
	free(old);
	return 0;
}

/* Into the lists of its version and of its holder. */
static void lease_link(struct lease *lease, struct lease **of_version, struct lease **of_holder)
{
	lease->next_of_version = *of_version;
	lease->link_of_version = of_version;
	if (*of_version)
		(*of_version)->link_of_version = &lease->next_of_version;
	*of_version = lease;

	lease->next_of_holder = *of_holder;
	lease->link_of_holder = of_holder;
	if (*of_holder)
		(*of_holder)->link_of_holder = &lease->next_of_holder;
	*of_holder = lease;
}

static void bucket_take(const struct registry *registry, struct lease *lease)
{
	struct lease **link = bucket_of(registry, lease->id);

	while (*link != lease)
		link = &(*link)->next_of_bucket;
	*link = lease->next_of_bucket;
}

/* Out of the table and of both lists. */
static void lease_unlink(struct registry *registry, struct lease *lease)
{
	bucket_take(registry, lease);
	*lease->link_of_version = lease->next_of_version;
	if (lease->next_of_version)
		lease->next_of_version->link_of_version = lease->link_of_version;
	*lease->link_of_holder = lease->next_of_holder;
	if (lease->next_of_holder)
		lease->next_of_holder->link_of_holder = lease->link_of_holder;
}

uint64_t version_awake_leases(const struct version *version)
{
	return version->lease_count - version->parked_count;
}

void lease_park(struct lease *lease)
{
	struct version *version = lease->version;

	awake_forget(lease);
	lease->parked = true;
	lease->parked_as = lease->id;
	version->parked_count++;
	if (version_awake_leases(version) == 0)
		version->last_used_ms = clock_wall_ms();
}

static void renumber(struct registry *registry, struct lease *lease, uint64_t id)
{
	bucket_take(registry, lease);
	lease->id = id;
	bucket_put(registry, lease);
}

void lease_unpark(struct registry *registry, struct lease *lease)
{
	renumber(registry, lease, ++registry->lease_last_id);
	lease->parked = false;
	lease->missing = 0;
	lease->version->parked_count--;
	awake_note(&registry->awake, lease);
}

void lease_unpark_undo(struct registry *registry, struct lease *lease)
{
	renumber(registry, lease, lease->parked_as);
	lease_park(lease);
}

static int not_leased(const struct version *version, struct error *error)
{
	return error_set(error, -EINVAL, "only ready versions are leased", "%s@%s is %s", version->model->name,
			 version->tag, version_state_name(version->state));
}

static int lease_add(struct registry *registry, struct version *version, uint32_t replica, bool parked,
		     const struct lease_holder *holder, struct lease **ret_lease, struct error *error)
{
	struct quota_charge charge;
	struct lease *lease;
	int r;

	if (!version_is_resident(version) && !parked)
		return error_set(error, -EINVAL, "promote it first", "%s@%s lies on %s, and not on its devices",
				 version->model->name, version->tag, tier_name(version->tier));
	r = quota_charge(holder->quota, holder->uid, QUOTA_LEASES, &charge, error);
	if (r < 0)
		return r;
	lease = table_grow(registry) == 0 ? calloc(1, sizeof(*lease)) : NULL;
	if (!lease) {
		quota_release(&charge);
		return out_of_memory(error);
	}
	lease->id = ++registry->lease_last_id;
	lease->version = version;
	lease->replica = replica;
	lease->holder = holder->holder;
	lease->since_ms = clock_wall_ms();
	lease->charge = charge;
	lease->peer = holder->peer;
	bucket_put(registry, lease);
	lease_link(lease, &version->leases, holder->leases);
	version->lease_count++;
	if (parked)
		lease_park(lease);
	else
		awake_note(&registry->awake, lease);
	registry->counts.leases++;
	*ret_lease = lease;
	return 0;
}

int lease_grant(struct registry *registry, struct version *version, uint32_t replica,
		const struct lease_holder *holder, struct lease **ret_lease, struct error *error)
{
	int r = version->state == VERSION_READY ? version_check_replica(version, replica, error)
						: not_leased(version, error);

	if (r < 0)
		return r;
	return lease_add(registry, version, replica, false, holder, ret_lease, error);
}

int lease_resume(struct registry *registry, struct version *version, uint32_t replica, bool parked,
		 const struct lease_holder *holder, struct lease **ret_lease, struct error *error)
{
	if (version->state != VERSION_READY && (version->state != VERSION_RETIRING || version->freeing))
		return not_leased(version, error);
	return lease_add(registry, version, replica, parked, holder, ret_lease, error);
}

struct lease *lease_by_id(const struct registry *registry, uint64_t id)
{
	struct lease *lease = registry->lease_bucket_count ? *bucket_of(registry, id) : NULL;

	while (lease && lease->id != id)
		lease = lease->next_of_bucket;
	return lease;
}

struct lease *lease_find(const struct registry *registry, uint64_t id, const void *holder)
{
	struct lease *lease = lease_by_id(registry, id);

	return lease && lease->holder == holder ? lease : NULL;
}

int lease_set_address(struct lease *lease, const char *address)
{
	const char *old = lease->address;
	char *copy = NULL;

	if (old == address || (old && address && strcmp(old, address) == 0))
		return 0;
	if (address) {
		copy = strdup(address);
		if (!copy)
			return -ENOMEM;
	}
	free(lease->address);
	lease->address = copy;
	return 1;
}

void lease_begin(struct registry *registry, uint64_t last)
{
	registry->lease_last_id = last;
}

uint64_t lease_last(const struct registry *registry)
{
	return registry->lease_last_id;
}

struct version *lease_release(struct registry *registry, struct lease *lease)
{
	struct version *version = lease->version;

	awake_forget(lease);
	lease_unlink(registry, lease);
	quota_release(&lease->charge);
	version->lease_count--;
	version->parked_count -= lease->parked;
	if (!lease->parked && version_awake_leases(version) == 0)
		version->last_used_ms = clock_wall_ms();
	registry->counts.leases--;
	room_free(lease->room);
	free(lease->address);
	free(lease);
	return version;
}

struct awake_book *registry_awake(struct registry *registry)
{
	return &registry->awake;
}

void registry_keep_awake(struct registry *registry)
{
	for (uint64_t i = 0; i < registry->lease_bucket_count; i++) {
		for (struct lease *lease = registry->lease_buckets[i]; lease; lease = lease->next_of_bucket)
			lease->awake = NULL;
	}
	registry->awake = (struct awake_book){0};
}
