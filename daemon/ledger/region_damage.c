/* What no user writes into the control memory of a region. Its users write there while gpuwmd reads. */
#include "region.h"

void region_user_came(struct region_user *user)
{
	struct region_slot *slot = &user->region->slots[user->slot];

	control_user_came(&user->region->control, user->slot, (uint32_t)user->pid, user->command);
	slot->generation++;
	slot->pid = (uint32_t)user->pid;
	slot->here = 1;
}

uint32_t region_user_left(struct region_user *user)
{
	user->region->slots[user->slot].here = 0;
	return control_user_left(&user->region->control, user->slot);
}

void region_slots_read(struct region *region)
{
	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		const struct control_user *user = &region->control.head->users[slot];

		region->slots[slot] = (struct region_slot){atomic_load(&user->generation),
							   atomic_load(&user->here), atomic_load(&user->pid)};
	}
}

/* Whether it is as gpuwmd wrote it. `here` without a user is none of gpuwmd's either: writers would name it, and wait for it. */
static bool slot_is_right(const struct region *region, unsigned slot)
{
	const struct control_user *user = &region->control.head->users[slot];
	const struct region_slot *wrote = &region->slots[slot];

	return atomic_load(&user->generation) == wrote->generation && atomic_load(&user->here) == wrote->here &&
	       atomic_load(&user->pid) == wrote->pid && (wrote->here == 0 || region->users[slot]);
}

/* A chunk may wait for a user that has just gone, whom its writer had not seen go. */
const char *region_damage(const struct region *region)
{
	const char *wrong = control_damage(&region->control, &region->id, region->is.bytes, region->had_users);
	uint32_t lock;

	for (unsigned slot = 0; !wrong && slot < REGION_USERS_MAX; slot++)
		wrong = slot_is_right(region, slot) ? NULL : "the table of its users was written over";
	if (wrong)
		return wrong;
	/* gpuwmd opens the lock when its holder goes. If gpuwmd is killed in between, the next one does it. */
	lock = atomic_load(&region->control.head->lock);
	if (lock != 0 && (lock > REGION_USERS_MAX || !region->users[lock - 1]))
		return "a user that there is not has its lock";
	return region->is.kind->damage(region);
}
