/* Room: what the holder of a lease takes on the lease's device besides the version. */
#include "registry_internal.h"

#include <errno.h>
#include <stdlib.h>

struct device *lease_device(const struct lease *lease)
{
	return lease->version->replicas[lease->replica].device;
}

uint64_t lease_room_bytes(const struct lease *lease)
{
	return lease->room ? lease->room->charge.bytes : 0;
}

static void room_give_back(struct lease_room *room)
{
	if (room->charge.device)
		room->charge.device->rooms -= room->charge.bytes;
	budget_release(&room->charge);
}

struct lease_room *room_free(struct lease_room *room)
{
	if (room)
		room_give_back(room);
	free(room);
	return NULL;
}

static void room_adopt(struct lease *lease, uint64_t bytes, struct quota *quota, const uid_t *uid)
{
	struct budget_charge *charge = &lease->room->charge;

	if (bytes == 0)
		return;
	budget_adopt(lease_device(lease), bytes, charge);
	charge->device->rooms += bytes;
	if (uid) /* the user has a lease, so there is a record, and no need of memory */
		budget_adopt_user(charge, quota, *uid, NULL);
}

/* The lease has none now. */
static int room_charge(struct lease *lease, uint64_t bytes, struct quota *quota, const uid_t *uid,
		       struct error *error)
{
	struct lease_room *room = lease->room;
	int r = budget_charge(lease_device(lease), bytes, &room->charge, error);

	if (r == 0 && uid && bytes > room->paid)
		r = budget_charge_user(&room->charge, quota, *uid, error);
	else if (r == 0 && uid)
		r = budget_adopt_user(&room->charge, quota, *uid, error);
	if (r < 0) {
		budget_release(&room->charge);
		return r;
	}
	room->charge.device->rooms += bytes;
	if (bytes > room->paid)
		room->paid = bytes;
	return 0;
}

int lease_room_make(struct lease *lease, struct error *error)
{
	if (!lease->room)
		lease->room = calloc(1, sizeof(*lease->room));
	return lease->room ? 0 : out_of_memory(error);
}

int lease_room_set(struct lease *lease, uint64_t bytes, struct quota *quota, const uid_t *uid,
		   struct error *error)
{
	const uint64_t before = lease_room_bytes(lease);
	int r = 0;

	if (bytes == before)
		return 0;
	r = lease_room_make(lease, error);
	if (r < 0)
		return r;
	room_give_back(lease->room);
	if (bytes > before)
		r = room_charge(lease, bytes, quota, uid, error);
	else
		room_adopt(lease, bytes, quota, uid);
	if (r < 0)
		room_adopt(lease, before, quota, uid);
	awake_note_room(lease);
	return r;
}

int lease_room_adopt(struct lease *lease, uint64_t bytes, struct quota *quota, const uid_t *uid,
		     struct error *error)
{
	int r = bytes > 0 ? lease_room_make(lease, error) : 0;

	if (r < 0 || bytes == 0)
		return r;
	room_give_back(lease->room);
	room_adopt(lease, bytes, quota, uid);
	lease->room->paid = bytes;
	awake_note_room(lease);
	return 0;
}

int lease_room_move(struct lease *from, struct lease *to, struct error *error)
{
	if (from == to || lease_device(from) != lease_device(to) || lease_room_bytes(to) > 0)
		return error_set(
			error, -EINVAL, "release it without that, and unpark the other lease with room",
			"the room of lease %llu does not go to lease %llu: it has room, or is on another device",
			(unsigned long long)from->id, (unsigned long long)to->id);
	room_free(to->room);
	to->room = from->room;
	from->room = NULL;
	awake_note_room(to);
	awake_note_room(from);
	return 0;
}
