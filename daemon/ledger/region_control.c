/* The control memory of a region: a memfd, and gpuwmd's mapping of it; and whether its users have damaged it. */
#include "region.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- making -------------------------------------------------------------- */

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

int region_control_new(struct control_shape shape, struct region_control *ret)
{
	const uint64_t bytes = control_bytes(shape);
	const int fd = make_memfd(bytes);
	void *address;

	if (fd < 0)
		return fd == -ENOSPC ? -ENOMEM : fd;
	address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (address == MAP_FAILED) {
		close(fd);
		return -ENOMEM;
	}
	*ret = (struct region_control){.shape = shape, .fd = fd, .address = address};
	return 0;
}

void region_control_free(const struct region_control *control)
{
	munmap(control->address, control_bytes(control->shape));
	close(control->fd);
}

static void set(struct region *region, void *address)
{
	region->control = control_at(address, region->is.shape);
	region_slots_read(region);
}

void region_take_control(struct region *region, const struct region_control *made)
{
	region->control_fd = made->fd;
	set(region, made->address);
	control_begin(&region->control, &region->id);
}

int region_control_failed(int code, struct error *error)
{
	return error_set(error, code, NULL, "gpuwmd could not make a region's control memory: %s",
			 strerror(-code));
}

int region_make_control(struct region *region, struct error *error)
{
	struct region_control made;
	int r = region_control_new(region->is.shape, &made);

	if (r < 0)
		return region_control_failed(r, error);
	region_take_control(region, &made);
	return 0;
}

/* ---- mapping --------------------------------------------------------------- */

int region_map_control(struct region *region, struct error *error)
{
	const uint64_t bytes = control_bytes(region->is.shape);
	void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region->control_fd, 0);

	if (address == MAP_FAILED)
		return error_set(error, -ENOMEM, NULL, "gpuwmd could not map a region's control memory: %s",
				 strerror(errno));
	set(region, address);
	return 0;
}

int region_drop_control(struct region *region)
{
	const int fd = region->control_fd;

	if (region->control.head)
		munmap(region->control.head, control_bytes(region->is.shape));
	region->control.head = NULL;
	region->control_fd = -1;
	return fd;
}

/* ---- damage ----
 * What no user writes into the control memory of a region. Its users write there while gpuwmd reads. */

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
	return region->is.kind->damage ? region->is.kind->damage(region) : NULL;
}
