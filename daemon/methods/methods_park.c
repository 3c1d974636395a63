/* Leases whose holders map nothing for a while: park, unpark. */
#include "methods.h"
#include "../work/versions/leases.h"
#include "../work/versions/unparks.h"

#include <errno.h>

int method_park(struct request *request, const void *given, struct error *error)
{
	const struct park_params *params = given;
	struct lease *lease = lease_own(request, params->lease, error);
	int r = lease ? leases_park(&request->server->work, lease, params->room, error) : error->code;

	if (r == 0)
		request_done(request);
	return r;
}

static void unpark_wake(struct waiter *waiter, const struct version *changed, bool expired)
{
	(void)changed;
	lease_wake(waiter, expired, lease_awake);
}

/* As much as it had when it was awake last. */
static uint64_t room_before(const struct lease *lease)
{
	return lease->parked && lease->room ? lease->room->awake : lease_room_bytes(lease);
}

int method_unpark(struct request *request, const void *given, struct error *error)
{
	const struct unpark_params *params = given;
	struct ref ref = {.has_id = true};
	struct lease_wanted wanted = {
		.ref = &ref, .device = "", .lease = params->lease, .wait_ms = params->wait_ms};
	struct lease *lease = lease_own(request, params->lease, error);
	struct lease_later later;
	int r;

	if (!lease)
		return error->code;
	ref.id = lease->version->id;
	wanted.room = params->room ? *params->room : room_before(lease);
	r = unparks_join(&request->server->work, lease, params->group, params->group_leases, error);
	if (r == 0)
		r = lease_awake(request, &wanted, &later, error);
	else
		later = (struct lease_later){0};
	if (r < 0 && later.comes && params->wait_ms != 0)
		return lease_wait(request, WAIT_READY, &wanted, params->wait_ms, unpark_wake, error);
	return r;
}
