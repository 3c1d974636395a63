/* One lease that waits to be awake: how it begins to wait, and how it ends. */
#include "unparks_internal.h"

#include "../../net/session.h"
#include "../../../base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

const uid_t *lease_payer(const struct lease *lease)
{
	const struct session *session = lease->holder;

	return session->kind == SESSION_ADMIN ? NULL : &session->peer.uid;
}

struct unpark *unpark_of(const struct lease *lease)
{
	return lease->room ? lease->room->unpark : NULL;
}

struct unpark *unpark_new(struct work *work, struct lease *lease, struct error *error)
{
	struct unpark *unpark = lease_room_make(lease, error) == 0 ? calloc(1, sizeof(*unpark)) : NULL;

	if (!unpark) {
		error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
		return NULL;
	}
	unpark->lease = lease;
	unpark->before = lease_room_bytes(lease);
	unpark->since_ms = clock_wall_ms();
	lease->room->unpark = unpark;
	DL_APPEND(work->unparks, unpark);
	work->unpark_count++;
	return unpark;
}

void unpark_take_back(struct work *work, struct unpark *unpark)
{
	if (!unpark->granted)
		return;
	unpark->granted = false;
	unpark->lease->version->waking--;
	lease_room_set(unpark->lease, unpark->before, work->ledger->quota, lease_payer(unpark->lease), NULL);
	work_later(work, LATER_ROOM);
}

void unparks_end(struct work *work, struct lease *lease, bool taken)
{
	struct unpark *unpark = unpark_of(lease);

	if (!unpark)
		return;
	if (taken && unpark->granted) {
		unpark->granted = false;
		lease->version->waking--;
	}
	unpark_take_back(work, unpark);
	lease->room->unpark = NULL;
	DL_DELETE(work->unparks, unpark);
	work->unpark_count--;
	free(unpark);
	work_later(work, LATER_UNPARKS);
}

uint64_t unpark_since_ms(const struct lease *lease)
{
	const struct unpark *unpark = unpark_of(lease);

	return unpark ? unpark->since_ms : 0;
}

uint64_t unparks_count(const struct work *work)
{
	return work->unpark_count;
}
