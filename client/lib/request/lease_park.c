/* Leases whose mapping has no memory for a while. From before gpuwmd hears of it until its answer to an unpark is read, a lease counts as
 * parked here. So after a restart it is taken again as what its process has, wherever gpuwmd was when it ended. */
#include "lease.h"

#include "../../../base/clock.h"
#include "call.h"

#include <errno.h>
#include <string.h>

static void lease_note(struct gpuwm_client *client, struct lease *lease, bool parked, uint64_t room)
{
	pthread_mutex_lock(&client->reviver.lock);
	lease->parked = parked;
	lease->room = room;
	pthread_mutex_unlock(&client->reviver.lock);
}

/* A lease, as one connection has it. */
struct granted_on {
	uint64_t id, round;
};

/* Waits for a connection. */
static int lease_find_granted(struct gpuwm_client *client, struct lease *lease, struct granted_on *ret,
			      struct error *error)
{
	struct connection *connection;
	int r = reconnect_take(client, 0, clock_deadline(client->restart_ms), &connection, &ret->round, error);

	if (r < 0)
		return r;
	connection_free(connection);
	r = lease_check(client, lease, error);
	pthread_mutex_lock(&client->reviver.lock);
	ret->id = lease->id;
	if (r == 0 && lease->round != ret->round)
		r = error_set(error, -ECONNRESET, "ask again", "the lease is on another connection");
	pthread_mutex_unlock(&client->reviver.lock);
	return r;
}

/* Whether the lease is taken again on the next connection, with another number. */
static bool moves_on(const struct gpuwm_client *client, int r)
{
	return (r == -ECONNRESET || r == -ECONNABORTED) && !client->reviver.once;
}

static int too_old(int r, struct error *error)
{
	return r == -ENOSYS ? error_set(error, -ENOTSUP, "upgrade gpuwmd: an upgrade keeps the weights",
					"this gpuwmd parks no leases: it is older")
			    : r;
}

static int park_once(struct gpuwm_client *client, const struct granted_on *on, uint64_t room,
		     struct error *error)
{
	struct call call;

	call_begin(&call, client, &form_park, &(struct park_params){on->id, room});
	call.only = on->round;
	return too_old(call_run(&call, 0, NULL, error), error);
}

int lease_park(struct gpuwm_client *client, struct lease *lease, uint64_t room, struct error *error)
{
	const uint64_t before = lease_room(client, lease);
	struct granted_on on;
	int r;

	lease_note(client, lease, true, room);
	do {
		r = lease_find_granted(client, lease, &on, error);
		if (r == 0)
			r = park_once(client, &on, room, error);
	} while (moves_on(client, r));
	/* gpuwmd is away, or does not answer: the next connection takes the lease as a parked one. */
	if (r == -ECONNREFUSED || r == -ETIMEDOUT)
		return 0;
	if (r < 0)
		lease_note(client, lease, false, before);
	return r;
}

/* Reads the answer into the grant. Fails with -ECONNRESET if the connection, and this lease with it, has ended meanwhile. */
static int unpark_take(struct gpuwm_client *client, struct lease *lease, const struct granted_on *on,
		       struct reply *reply, struct grant *grant, struct error *error)
{
	struct lease told = {0};
	int r;

	*grant = (struct grant){.lease = &told};
	part_init(&grant->part);
	fork_lock();
	fork_watch(&grant->hook, grant_in_child, grant);
	r = grant_read(reply, grant, error);
	fork_unlock();
	grant->lease = lease;
	if (r == 0 && told.copied)
		r = error_set(error, -EPROTO, NULL, "unpark: handles of a copy");
	if (r == 0 && !lease_awake(client, lease, &told, on->round))
		r = error_set(error, -ECONNRESET, "ask again", "the lease is on another connection");
	if (r < 0)
		grant_close_fds(grant);
	return r;
}

/* An older gpuwmd skips what it does not know, and the process would take memory that is others'. */
static int check_room(struct gpuwm_client *client, const struct lease *lease, uint64_t room,
		      struct error *error)
{
	if (room == GPUWM_ROOM_AS_BEFORE || lease_room(client, lease) == room)
		return 0;
	return error_set(error, -ENOTSUP, "upgrade gpuwmd, or unpark without room",
			 "this gpuwmd makes no room: it is older");
}

static int unpark_once(struct gpuwm_client *client, struct lease *lease, const struct granted_on *on,
		       const struct unpark_wish *wish, struct grant *ret, struct error *error)
{
	struct reply reply;
	struct call call;
	int r;

	call_begin(&call, client, &form_unpark,
		   &(struct unpark_params){.lease = on->id,
					   .room = wish->room == GPUWM_ROOM_AS_BEFORE ? NULL : &wish->room,
					   .group = wish->group,
					   .group_leases = wish->group_leases});
	call.only = on->round;
	r = call_run(&call, wish->wait_ms, &reply, error);
	if (r < 0)
		return too_old(r, error);
	r = unpark_take(client, lease, on, &reply, ret, error);
	reply_clear(&reply);
	if (r < 0)
		return r;
	r = check_room(client, lease, wish->room, error);
	if (r < 0)
		grant_close_fds(ret);
	return r;
}

int lease_unpark(struct gpuwm_client *client, struct lease *lease, const struct unpark_wish *wish,
		 struct grant *ret, struct error *error)
{
	const int64_t deadline = clock_deadline(wish->wait_ms);
	struct unpark_wish now = *wish;
	struct granted_on on;
	int r;

	do {
		if (wish->wait_ms > 0)
			now.wait_ms = clock_until(deadline);
		r = lease_find_granted(client, lease, &on, error);
		if (r == 0)
			r = unpark_once(client, lease, &on, &now, ret, error);
	} while (moves_on(client, r));
	return r;
}
