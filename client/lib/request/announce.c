#include "lease.h"

#include "../../../base/clock.h"
#include "call.h"
#include "../../../proto/address.h"

#include <errno.h>
#include <stdio.h>

int announce_check(const char *address, struct error *error)
{
	const char *wrong = address ? address_wrong(address) : NULL;

	if (!wrong)
		return 0;
	return error_set(error, -EINVAL, "host:port, [IPv6]:port or unix:/path", "the address \"%.128s\" %s",
			 address, wrong);
}

void lease_address(struct gpuwm_client *client, const struct lease *lease, char ret[ADDRESS_BYTES_MAX + 1])
{
	pthread_mutex_lock(&client->reviver.lock);
	snprintf(ret, ADDRESS_BYTES_MAX + 1, "%s", lease->address);
	pthread_mutex_unlock(&client->reviver.lock);
}

/* From now on the lease is taken again with this address; "": none. */
static void lease_note_address(struct gpuwm_client *client, struct lease *lease, const char *address)
{
	pthread_mutex_lock(&client->reviver.lock);
	snprintf(lease->address, sizeof(lease->address), "%s", address);
	pthread_mutex_unlock(&client->reviver.lock);
}

/* Tells gpuwmd once. *ret_again: the connection ended before the answer. */
static int address_tell(struct gpuwm_client *client, uint64_t id, const char *address,
			struct connection *connection, bool *ret_again, struct error *error)
{
	struct message_writer w;
	enum fate fate;
	int r;

	message_write_request(&w, request_next_id(), &form_announce, &(struct announce_params){id, address});
	r = connection_try(connection, &w, CALL_TIMEOUT_MS, NULL, &fate, error);
	message_writer_clear(&w);
	/* A gpuwmd that stops says so with -ECONNRESET. */
	if (fate != FATE_ANSWERED || r == -ECONNRESET)
		reviver_ended(&client->reviver, connection, error);
	*ret_again = r == -ECONNRESET && !client->reviver.once;
	return r;
}

static int address_tell_until_heard(struct gpuwm_client *client, struct lease *lease, const char *address,
				    int64_t wait_ms, struct error *error)
{
	struct connection *connection;
	uint64_t round, id = 0;
	bool again = true, granted;
	int r = 0;

	while (again) {
		r = reconnect_take(client, 0, clock_deadline(wait_ms), &connection, &round, error);
		if (r < 0)
			return r;
		r = lease_check(client, lease, error);
		again = granted = false;
		if (r == 0) {
			pthread_mutex_lock(&client->reviver.lock);
			granted = lease->round == round;
			id = lease->id;
			pthread_mutex_unlock(&client->reviver.lock);
		}
		/* If gpuwmd has not granted it on this connection, the client has yet to take it again, and then sends the address too. */
		if (granted)
			r = address_tell(client, id, address, connection, &again, error);
		connection_free(connection);
	}
	return r;
}

int lease_announce(struct gpuwm_client *client, struct lease *lease, const char *address, int64_t wait_ms,
		   struct error *error)
{
	char before[ADDRESS_BYTES_MAX + 1];
	struct error unused;
	int r;

	if (!error)
		error = &unused;
	r = announce_check(address, error);

	if (r < 0)
		return r;
	lease_address(client, lease, before);
	lease_note_address(client, lease, address ? address : "");
	r = address_tell_until_heard(client, lease, address, wait_ms, error);
	if (r < 0 && r != -ECONNREFUSED)
		lease_note_address(client, lease, before);
	return r;
}
