#include "leases.h"
#include "unparks.h"
#include "../../../base/bytes.h"
#include "../../../base/clock.h"
#include "../../net/session.h"
#include "../tiers/moves.h"
#include "../../../proto/wire/messages.h"

#include <errno.h>

static void lease_tell(struct work *work, const struct lease *lease, const char *address, const char *state)
{
	const struct version *version = lease->version;

	if (version_is_nameless(version))
		return;
	event_emit(work->ledger->events, &event_announced,
		   &(struct announced_event){
			   .version = &version->id,
			   .model = model_name(version->model),
			   .tag = version->tag,
			   .lease = lease->id,
			   .address = address,
			   .state = state,
		   },
		   &(struct event_about){.model = model_name(version->model),
					 .owner = model_owner(version->model),
					 .for_observers = true});
}

static unsigned *lease_address_count(const struct lease *lease)
{
	struct session *session = lease->holder;

	return &session->client->addresses;
}

int leases_announce(struct work *work, struct lease *lease, const char *address, struct error *error)
{
	const bool had = lease->address;
	unsigned *count = lease_address_count(lease);
	int r;

	if (address && !had && *count >= ADDRESSES_PER_SESSION_MAX)
		return error_set(error, -EDQUOT, "announce further addresses on another connection",
				 "leases of one connection have at most %d addresses",
				 ADDRESSES_PER_SESSION_MAX);
	r = lease_set_address(lease, address);
	if (r < 0)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	if (r == 0)
		return 0;
	*count = *count + (address != NULL) - had;
	if (!lease->parked)
		lease_tell(work, lease, address, address ? "announced" : "withdrawn");
	return 0;
}

static void tell_parked(struct work *work, const struct lease *lease)
{
	if (lease->address)
		lease_tell(work, lease, NULL, "withdrawn");
	work_later(work, LATER_RESIDENTS);
}

int leases_park(struct work *work, struct lease *lease, uint64_t room, struct error *error)
{
	const struct version *version = lease->version;
	const char *model = model_name(version->model);
	char kept[BYTES_TEXT], had[BYTES_TEXT];

	if (lease->copy)
		return error_set(error, -ENOTSUP, "let it go, and attach again later",
				 "lease %llu is of a copy by cuda_ipc, whose holder keeps the memory",
				 (unsigned long long)lease->id);
	if (version_is_nameless(version))
		return error_set(error, -EINVAL, "publish it under a name",
				 "%s@%s has no name: it does not move", model, version->tag);
	if (version->cache.cached)
		return error_set(error, -EINVAL, "let it go, and build it again later",
				 "%s@%s is cached: it does not move", model, version->tag);
	unparks_end(work, lease, false);
	if (room > lease_room_bytes(lease))
		return error_set(error, -EINVAL, "unpark it with that much first",
				 "%s@%s can't park with %s of room: it has %s", model, version->tag,
				 bytes_format(room, kept), bytes_format(lease_room_bytes(lease), had));
	if (!lease->parked && lease->room)
		lease->room->awake = lease_room_bytes(lease);
	lease_room_set(lease, room, work->ledger->quota, lease_payer(lease), NULL); /* less is always there */
	if (lease->room)
		lease->room->kept = room;
	work_later(work, LATER_ROOM);
	if (lease->parked)
		return 0;
	lease_park(lease);
	tell_parked(work, lease);
	return 0;
}

void leases_unpark_undo(struct work *work, struct lease *lease)
{
	lease_unpark_undo(work->ledger->registry, lease);
	if (lease->room)
		lease_room_set(lease, lease->room->kept, work->ledger->quota, lease_payer(lease), NULL);
	work_later(work, LATER_ROOM);
	tell_parked(work, lease);
}

void leases_unpark(struct work *work, struct lease *lease)
{
	unparks_end(work, lease, true);
	if (!lease->parked)
		return;
	lease_unpark(work->ledger->registry, lease);
	if (lease->address)
		lease_tell(work, lease, lease->address, "announced");
	moves_stop_demotion(work, lease->version, "a process that unparks its lease");
}

struct version *leases_end(struct work *work, struct lease *lease)
{
	if (lease->copy) {
		ipc_copy_leave(lease, clock_steady_ms());
		work_later(work, LATER_COPIES);
	}
	unparks_end(work, lease, false);
	if (lease_room_bytes(lease) > 0)
		work_later(work, LATER_ROOM);
	if (lease->address) {
		--*lease_address_count(lease);
		if (!work->net->stopping && !lease->parked)
			lease_tell(work, lease, NULL, "ended");
	}
	work_later(work, LATER_RESIDENTS);
	return lease_release(work->ledger->registry, lease);
}
