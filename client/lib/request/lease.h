/* The leases of a client. After a restart the client takes each lease again from the next gpuwmd, and the mapping that uses
 * the lease does not notice. */
#ifndef GPUWM_LIB_LEASE_H
#define GPUWM_LIB_LEASE_H

#include "client.h"

struct lease {
	struct gpuwm_version_info version; /* without digests */
	uint64_t id;
	uint64_t round; /* of the connection on which gpuwmd gave the id */
	char address[ADDRESS_BYTES_MAX + 1]; /* what the program announced; "": nothing */
	bool dropped; /* the caller gave it back during an attempt to connect, at whose end it is freed */
	bool copied; /* of a copy by CUDA IPC, which the next gpuwmd does not have */
	bool told; /* the program has heard that it is lost, or need not hear it */
	bool revoked; /* an operator revoked it, so it is lost; gpuwmd waits to hear that its memory is unmapped */
	int lost; /* the code of the loss; 0: the client holds it, or takes it again */
	struct error *why; /* of the loss; NULL: there was no memory for the words */
	struct lease *prev, *next;
};

/* Hands the client a lease that gpuwmd granted on the connection of this round. Returns false if that connection has ended,
 * and the lease with it: then the caller still owns the (malloced) lease. */
bool lease_hold(struct gpuwm_client *client, struct lease *lease, uint64_t round);

/* Hands the client a (malloced) lease that gpuwmd refused, of a mapping that goes on without it. lease_check returns the
 * refusal; the program's function for lost leases is not called. */
void lease_missed(struct gpuwm_client *client, struct lease *lease, const struct error *why);

/* Gives the lease back to gpuwmd, and frees it in any case. Returns 0 also while gpuwmd is away. -EIO: gpuwmd refused. */
int lease_release(struct gpuwm_client *client, struct lease *lease, struct error *error);

/* The same, without a result, for a thread that must not wait for calls of other threads: some of those wait for ever. */
void lease_drop(struct gpuwm_client *client, struct lease *lease);

/* Returns 0 if the client holds the lease or takes it again, else the code that it was lost with. */
int lease_check(struct gpuwm_client *client, const struct lease *lease, struct error *error);

/* Returns whether an operator revoked the lease. */
bool lease_was_revoked(struct gpuwm_client *client, const struct lease *lease);

/* ---- for whoever connects (reconnect.h) ---------------------------------- */

/* Takes all leases again on a new connection, of this round. Returns 0 also if this gpuwmd never gives any back, because it
 * can't read its state or is too old. After any other error the caller closes the connection and tries again. */
int leases_resume(struct gpuwm_client *client, struct connection *connection, uint64_t round,
		  struct error *error);

/* A connection_notify_fn for connections of a client: marks the leases as lost that gpuwmd says were revoked. */
void leases_on_notify(struct message *message, struct packet *packet, void *client, uint64_t round);

/* Call the following functions with the reviver's lock held. */

/* Frees the leases that the program gave back during an attempt to connect, and releases them on the connection of this
 * round, unless that is NULL. Unlocks the reviver's lock meanwhile. */
void leases_settle(struct gpuwm_client *client, struct connection *connection, uint64_t round);
/* Marks all leases as lost, for this reason. */
void leases_lose(struct gpuwm_client *client, const struct error *why);
/* Calls the program's function for one lost lease of which the program has not heard. Unlocks the reviver's lock
 * meanwhile. Returns false if there is no such lease. */
bool leases_tell(struct gpuwm_client *client);

/* ---- addresses ----------------------------------------------------------- */

/* The address at which this process serves requests with a lease. gpuwmd tells it to load balancers. It goes with the lease: the
 * client sends it again when it takes the lease again. */

/* Returns 0 if the text is an address, or NULL, else -EINVAL. */
int announce_check(const char *address, struct error *error);

/* Announces the address; NULL: none any more. wait_ms: how long to wait for the next gpuwmd if there is none; -1: for ever. Fails with the code of gpuwm_lost if the lease
 * is lost, with -EINVAL, -EDQUOT and -ENOSYS (gpuwmd is older than addresses): then the address before holds. Fails with
 * -ECONNREFUSED: the client announces the address with the next connection. */
int lease_announce(struct gpuwm_client *client, struct lease *lease, const char *address, int64_t wait_ms,
		   struct error *error);

/* Sets ret to the lease's address; "": it has none. */
void lease_address(struct gpuwm_client *client, const struct lease *lease, char ret[ADDRESS_BYTES_MAX + 1]);

#endif
