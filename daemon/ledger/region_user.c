/* The users of a region, and its control memory. */
#include "region.h"

#include "../base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- control memory ---- */

/* Its pages are there from the beginning, so that gpuwmd gets no fault for want of memory later. */
static int make_memfd(uint64_t bytes)
{
	int fd = memfd_create("gpuwm-control", MFD_CLOEXEC | MFD_ALLOW_SEALING), r;

	if (fd < 0)
		return -errno;
	r = posix_fallocate(fd, 0, (off_t)bytes);
	if (r == 0 &&
	    (fchmod(fd, 0600) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0))
		r = errno;
	if (r == 0)
		return fd;
	close(fd);
	return -r;
}

int region_map_control(struct region *region, struct error *error)
{
	const uint64_t bytes = control_bytes(region->is.chunks);
	void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region->control_fd, 0);

	if (address == MAP_FAILED)
		return error_set(error, -ENOMEM, NULL, "gpuwmd could not map a region's control memory: %s",
				 strerror(errno));
	region->control = control_at(address, region->is.chunks);
	region_slots_read(region);
	return 0;
}

int region_make_control(struct region *region, struct error *error)
{
	int fd = make_memfd(control_bytes(region->is.chunks)), r;

	if (fd < 0)
		return error_set(error, fd == -ENOSPC ? -ENOMEM : fd, NULL,
				 "gpuwmd could not make a region's control memory: %s", strerror(-fd));
	region->control_fd = fd;
	r = region_map_control(region, error);
	if (r == 0)
		control_begin(&region->control, &region->id);
	return r;
}

/* ---- users ---- */

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

static int add(struct region_table *table, struct region *region, const struct region_user *like,
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
	return add(table, region, &user, ret_user, error);
}

int region_user_adopt(struct region_table *table, struct region *region, const struct region_user *like,
		      struct region_user **ret_user, struct error *error)
{
	if (like->slot >= REGION_USERS_MAX)
		return error_set(error, -EINVAL, NULL, "a user with the slot %u", like->slot);
	if (region->users[like->slot])
		return error_set(error, -EEXIST, NULL, "two users have the slot %u", like->slot);
	return add(table, region, like, ret_user, error);
}

int region_user_charge(struct region_user *user, struct quota *quota, bool adopt, struct error *error)
{
	if (user->by_operator)
		return 0;
	return adopt ? quota_adopt(quota, user->uid, QUOTA_FDS, 1, &user->charge, error)
		     : quota_charge(quota, user->uid, QUOTA_FDS, &user->charge, error);
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
