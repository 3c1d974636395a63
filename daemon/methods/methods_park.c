/* Leases whose holders map nothing for a while: park, unpark. */
#include "methods.h"
#include "../work/versions/leases.h"

#include <errno.h>

static struct lease *own_lease(const struct request *request, uint64_t id, struct error *error)
{
	struct lease *lease = lease_find(request->server->ledger.registry, id, request->session);

	if (!lease && revoked_find(&request->server->work, id))
		error_set(error, -ESTALE, "let it go", "lease %llu was revoked by an operator",
			  (unsigned long long)id);
	else if (!lease)
		error_set(error, -ENOENT, "a lease is parked on the connection that took it",
			  "lease %llu is not this connection's", (unsigned long long)id);
	return lease;
}

int method_park(struct request *request, const void *given, struct error *error)
{
	const struct park_params *params = given;
	struct lease *lease = own_lease(request, params->lease, error);
	int r = lease ? leases_park(&request->server->work, lease, params->room, lease_payer(request), error)
		      : error->code;

	if (r == 0)
		request_done(request);
	return r;
}

/* A lease_ask_fn: of the lease wanted->lease, which may have ended while the request waited. */
static int unpark_answer(const struct request *request, const struct lease_wanted *wanted,
			 struct lease_later *ret_later, struct error *error)
{
	struct lease *lease = own_lease(request, wanted->lease, error);
	struct lease_found found;
	int r;

	*ret_later = (struct lease_later){0};
	if (!lease)
		return error->code;
	found = (struct lease_found){.version = lease->version, .replica = lease->replica};
	if (!version_is_resident(found.version)) {
		if (found.version->state != VERSION_READY)
			return lease_not_ready(found.version, ret_later, error);
		return lease_promote(request, wanted, found.version, ret_later, error);
	}
	r = version_check_replica(found.version, found.replica, error);
	if (r == 0)
		r = lease_room_set(lease, wanted->room, request->server->ledger.quota, lease_payer(request),
				   error);
	if (r < 0)
		return r;
	leases_unpark(&request->server->work, lease);
	lease_tell_fds(request, &found, lease->id);
	return 0;
}

static void unpark_wake(struct waiter *waiter, const struct version *changed, bool expired)
{
	(void)changed;
	lease_wake(waiter, expired, unpark_answer);
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
	struct lease_wanted wanted = {.ref = &ref, .device = "", .lease = params->lease};
	const struct lease *lease = own_lease(request, params->lease, error);
	struct lease_later later;
	int r;

	if (!lease)
		return error->code;
	ref.id = lease->version->id;
	wanted.room = params->room ? *params->room : room_before(lease);
	r = unpark_answer(request, &wanted, &later, error);
	wanted.promotion = later.promotion;
	if (r < 0 && later.comes && params->wait_ms != 0)
		return lease_wait(request, WAIT_READY, &wanted, params->wait_ms, unpark_wake, error);
	return r;
}
