/* The users of a region. */
#include "region.h"

#include "../../base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* REGION_USERS_MAX: all are taken. */
static unsigned free_slot(const struct region *region)
{
	unsigned best = REGION_USERS_MAX;

	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		if (!region->users[slot] &&
		    (best == REGION_USERS_MAX || region->left_at[slot] < region->left_at[best]))
			best = slot;
	}
	return best;
}

static int region_user_insert(struct region_table *table, struct region *region, const struct region_user *like,
			      struct region_user **ret_user, struct error *error)
{
	struct region_user *user = malloc(sizeof(*user));

	if (!user)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	*user = *like;
	user->region = region;
	region->users[user->slot] = user;
	region->had_users |= UINT32_C(1) << user->slot;
	table->users++;
	*ret_user = user;
	return 0;
}

int region_user_add(struct region_table *table, struct region *region, const struct region_user *like,
		    struct region_user **ret_user, struct error *error)
{
	static const struct version_id none;
	struct region_user user = *like;

	user.slot = free_slot(region);
	user.since_ms = clock_wall_ms();
	if (user.slot == REGION_USERS_MAX)
		return error_set(error, -EDQUOT,
				 "close it where it is not needed: gpuwmctl regions names its users",
				 "the region has all %d users that it may have", REGION_USERS_MAX);
	if (version_id_equal(&user.use, &none) && version_id_new(&user.use) < 0)
		return error_set(error, -EIO, NULL, "the kernel gave no random bytes for an id");
	return region_user_insert(table, region, &user, ret_user, error);
}

int region_user_adopt(struct region_table *table, struct region *region, const struct region_user *like,
		      struct region_user **ret_user, struct error *error)
{
	if (like->slot >= REGION_USERS_MAX)
		return error_set(error, -EINVAL, NULL, "a user with the slot %u", like->slot);
	if (region->users[like->slot])
		return error_set(error, -EEXIST, NULL, "two users have the slot %u", like->slot);
	return region_user_insert(table, region, like, ret_user, error);
}

int region_user_charge(struct region_user *user, struct quota *quota, bool adopt, struct error *error)
{
	if (user->by_operator)
		return 0;
	return adopt ? quota_adopt(quota, user->uid, QUOTA_FDS, REGION_USER_FDS, &user->charge, error)
		     : quota_charge_amount(quota, user->uid, QUOTA_FDS, REGION_USER_FDS, &user->charge, error);
}

bool region_user_quota_comes(const struct quota *quota, uid_t uid)
{
	const uint64_t needs[QUOTA_KINDS] = {[QUOTA_FDS] = REGION_USER_FDS};

	return quota_comes(quota, uid, needs);
}

void region_user_free(struct region_table *table, struct region_user *user)
{
	user->region->users[user->slot] = NULL;
	user->region->left_at[user->slot] = ++table->departures;
	table->users--;
	quota_release(&user->charge);
	if (user->pidfd >= 0)
		close(user->pidfd);
	free(user);
}

struct region_user *region_owner(const struct region *region)
{
	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		if (region->users[slot] && region->users[slot]->owns)
			return region->users[slot];
	}
	return NULL;
}

bool region_is_unused(const struct region *region)
{
	unsigned slot = 0;

	while (slot < REGION_USERS_MAX && !region->users[slot])
		slot++;
	return slot == REGION_USERS_MAX;
}

bool region_ends_with(const struct region_user *user)
{
	return user->owns && !user->region->is.owned_by_uid;
}
