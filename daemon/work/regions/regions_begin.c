/* Regions at gpuwmd's start, and at its end. */
#include "regions.h"

#include "../../../service/log.h"
#include "../../restart/inherited.h"

#include <errno.h>

/* Not all of its descriptors were there (restart/snapshot_region.c). */
static bool is_lost(const struct region *region)
{
	return region->state == REGION_ENDED && region_is_unused(region);
}

/* ---- what may fail, and then leaves everything as it was ----
 * The kernel is short of memory for moments. A region must not end for that, so gpuwmd repeats what has failed, and else does not
 * start: the next start finds the same descriptors. */

struct mapping {
	struct region *region;
	struct error error;
};

static int map_again(int fd, void *data)
{
	struct mapping *mapping = data;

	(void)fd;
	return region_map_control(mapping->region, &mapping->error);
}

struct watching {
	struct work *work;
	struct region_user *user;
	struct error error;
};

/* A descriptor that is no pidfd can't be watched, now or later. */
static int watch_again(int fd, void *data)
{
	struct watching *watching = data;
	int r = region_watch(watching->work, watching->user, regions_user_died, &watching->error);

	(void)fd;
	return r == -EPERM ? -EINVAL : r;
}

/* Of a region that is not lost. */
static int region_reopen(struct work *work, struct region *region, struct error *error)
{
	struct mapping mapping = {.region = region};
	int r = look_again(map_again, region->control_fd, &mapping);

	if (r < 0)
		*error = mapping.error;
	for (unsigned slot = 0; r >= 0 && slot < REGION_USERS_MAX; slot++) {
		struct watching watching = {.work = work, .user = region->users[slot]};

		if (!watching.user)
			continue;
		r = look_again(watch_again, watching.user->pidfd, &watching);
		if (r == -EINVAL)
			r = 0; /* region_begin counts it as exited */
		else if (r < 0)
			*error = watching.error;
	}
	return r;
}

/* ---- going on ---- */

/* Whoever is in the state uses the region, whatever the control memory says. If the process does not know that it is a user,
 * since it got no answer, it asks again with the same use, or exits. gpuwmd may also have been killed when a user was coming,
 * and the state did not have it yet. */
static void region_show_users(struct region *region)
{
	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		struct control_user *user = &region->control.head->users[slot];

		if (region->users[slot])
			atomic_store(&user->here, 1);
		else if (atomic_load(&user->here) || atomic_load(&user->generation))
			control_user_left(&region->control, slot);
	}
	region_slots_read(region);
}

static void region_end_unwatched(struct work *work, struct region *region)
{
	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		struct region_user *user = region->users[slot];

		if (!user || user->watch)
			continue;
		log_warning("pid %llu (%s, uid %u) counts as exited: what was kept of it is no pidfd",
			    (unsigned long long)user->pid, user->command, (unsigned)user->uid);
		regions_user_died(work, user);
	}
}

static void region_begin(struct work *work, struct region *region)
{
	struct error ignored;

	region->busy++;
	region_show_users(region);
	if (region->state == REGION_ENDED) {
		region_show_end(region); /* gpuwmd may have been killed before it did */
	} else {
		atomic_store(&region->control.head->ended, CONTROL_OPEN);
		regions_check(work, region, &ignored);
	}
	region_end_unwatched(work, region);
	region->busy--;
	regions_settle(work, region);
}

/* One whose descriptors were not all there. */
static void region_tell_lost(struct work *work, struct region *region)
{
	struct error ignored;

	log_error("%s", region->error.message);
	if (region->control_fd >= 0 && region_map_control(region, &ignored) == 0)
		region_show_end(region);
	regions_tell(work, &event_region_ended, region, &(struct region_event){.error = &region->error});
	regions_settle(work, region);
}

int regions_begin(struct work *work, struct error *error)
{
	struct region *region = work->ledger->regions.first, *next;
	char id[VERSION_ID_TEXT];
	struct error why;

	for (; region; region = region->next) {
		if (is_lost(region) || region_reopen(work, region, &why) >= 0)
			continue;
		hex128_format(region->id.bytes, id);
		return error_set(
			error, why.code,
			"gpuwmd ends and lets nothing go, so that its next start finds all of it again",
			"gpuwmd can't go on with the region %s: %s", region->name[0] ? region->name : id,
			why.message);
	}
	for (region = work->ledger->regions.first; region; region = next) {
		next = region->next;
		if (is_lost(region))
			region_tell_lost(work, region);
		else
			region_begin(work, region);
	}
	if (work->ledger->regions.count > 0)
		log_info("regions taken over: %llu, with %llu users",
			 (unsigned long long)work->ledger->regions.count,
			 (unsigned long long)work->ledger->regions.users);
	return 0;
}

void regions_close(struct work *work)
{
	for (const struct region *region = work->ledger->regions.first; region; region = region->next) {
		for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
			if (region->users[slot])
				region_unwatch(region->users[slot]);
		}
	}
}
