/* What a client holds. Each lease is known to its client, which takes it again
 * from the next gpuwmd; what uses one knows of that nothing. */
#ifndef GPUWM_LIB_LEASE_H
#define GPUWM_LIB_LEASE_H

#include "client.h"

struct lease {
	struct gpuwm_version_info version; /* names it; no digests */
	uint64_t id;
	uint64_t round; /* of the connection that the id counts on */
	bool dropped; /* given back while it was taken again */
	bool told; /* that it is lost */
	bool revoked; /* lost since an operator revoked it: gpuwmd is to hear when it is unmapped */
	int lost; /* the code; 0: held, or to be taken again */
	struct error *why; /* NULL: memory was short */
	struct lease *next, *previous;
};

/* A lease (malloced) that was granted on the connection of this round becomes the
 * client's. False: that connection has ended, and the lease with it. */
bool lease_hold(struct gpuwm_client *client, struct lease *lease, uint64_t round);

/* One (malloced) that was not granted, of a mapping that goes on without: nobody is told, lease_check says why. */
void lease_missed(struct gpuwm_client *client, struct lease *lease, const struct error *why);

/* Gives it back, and frees it in any case. 0 also while gpuwmd is away; -EIO: it
 * was refused. */
int lease_release(struct gpuwm_client *client, struct lease *lease, struct error *error);

/* The same for a thread that must not wait for calls of others, some of which wait for ever. Nobody is told what
 * became of it. */
void lease_drop(struct gpuwm_client *client, struct lease *lease);

/* 0, or what it was lost with. */
int lease_check(struct gpuwm_client *client, const struct lease *lease, struct error *error);

/* Whether an operator revoked it. */
bool lease_was_revoked(struct gpuwm_client *client, const struct lease *lease);

/* ---- for the reviver -------------------------------------------------- */

/* Takes all again on a new connection. 0 also when gpuwmd refuses to until its end, as one does that
 * can't read what it was left, or is older; else the connection is not worth having. */
int leases_resume(struct gpuwm_client *client, struct connection *connection, uint64_t round,
		  struct error *error);

/* A connection_notify_fn for connections of the client, which is its data: hears which leases were revoked. */
void leases_on_notify(struct message *message, struct packet *packet, void *client);

/* The rest is called under the reviver's lock. */

/* Frees those that were given back during the attempt, after telling the
 * connection of this round, unless it is NULL. Lets go of the lock in between. */
void leases_settle(struct gpuwm_client *client, struct connection *connection, uint64_t round);
void leases_lose(struct gpuwm_client *client, const struct error *why);
/* Tells the next one that is lost, without the lock. False: all were told. */
bool leases_tell(struct gpuwm_client *client);

#endif
