/* The leases of a client, and grants, which bring them. After a restart the client takes each lease again from the next gpuwmd, and
 * the mapping that uses the lease does not notice. */
#ifndef GPUWM_LIB_LEASE_H
#define GPUWM_LIB_LEASE_H

#include "client.h"
#include "../../../memory/memory_ipc.h"
#include "../../../proto/index/index.h"
#include "../../../proto/wire/part.h"

struct lease {
	struct gpuwm_version_info version; /* without digests */
	uint64_t id;
	uint64_t round; /* of the connection on which gpuwmd gave the id */
	char address[ADDRESS_BYTES_MAX + 1]; /* what the program announced; "": nothing */
	bool dropped; /* the caller gave it back during an attempt to connect, at whose end it is freed */
	bool copied; /* of a copy by CUDA IPC, which the next gpuwmd does not have */
	bool parked; /* nothing is mapped for it */
	uint64_t room; /* bytes that gpuwmd counts for it besides the version */
	bool told; /* the program has heard that it is lost, or need not hear it */
	bool revoked; /* an operator revoked it, so it is lost; gpuwmd waits to hear that its memory is unmapped */
	int lost; /* the code of the loss; 0: the client holds it, or takes it again */
	struct error *why; /* of the loss; NULL: there was no memory for the words */
	struct lease *prev, *next;
};

/* Hands the client a lease that gpuwmd granted on the connection of this round. Returns false if that connection has ended,
 * and the lease with it: then the caller still owns the (malloced) lease. */
bool lease_hold(struct gpuwm_client *client, struct lease *lease, uint64_t round);

/* gpuwmd has unparked a lease of the client, as `told` has it: under another number, with other room, on the connection of this round. Returns false if the client has taken the
 * lease again on another connection: it is parked there. */
bool lease_awake(struct gpuwm_client *client, struct lease *lease, const struct lease *told, uint64_t round);

/* Hands the client a (malloced) lease that gpuwmd refused, of a mapping that goes on without it. lease_check returns the
 * refusal; the program's function for lost leases is not called. */
void lease_missed(struct gpuwm_client *client, struct lease *lease, const struct error *why);

/* Gives the lease back to gpuwmd, and frees it in any case. Returns 0 also while gpuwmd is away. -EIO: gpuwmd refused. */
int lease_release(struct gpuwm_client *client, struct lease *lease, struct error *error);

/* The same, and the lease `to` of the same device, which has none, gets its room. NULL: nobody. */
int lease_replace(struct gpuwm_client *client, struct lease *lease, struct lease *to, struct error *error);

/* The same, without a result, for a thread that must not wait for calls of other threads: some of those wait for ever. */
void lease_drop(struct gpuwm_client *client, struct lease *lease);

/* Returns 0 if the client holds the lease or takes it again, else the code that it was lost with. */
int lease_check(struct gpuwm_client *client, const struct lease *lease, struct error *error);

/* Returns whether an operator revoked the lease. */
bool lease_was_revoked(struct gpuwm_client *client, const struct lease *lease);

/* ---- for whoever connects (reconnect.c) ---------------------------------- */

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

/* ---- parking (parking.c) ---------------------------------------------------- */

/* Tells gpuwmd that nothing is mapped for the lease any more, and how much of its room the process keeps. If gpuwmd is away, the next one hears it with the lease. Fails with the
 * code of gpuwm_lost if the lease is lost, with -EINVAL (the version does not move) and -ENOTSUP (gpuwmd is older): the lease is as
 * before then. */
int lease_park(struct gpuwm_client *client, struct lease *lease, uint64_t room, struct error *error);
/* What a lease is to be awake with. */
struct unpark_wish {
	uint64_t room; /* bytes; GPUWM_ROOM_AS_BEFORE */
	const char *group; /* of the leases that are awake together; NULL: this one alone */
	uint64_t group_leases; /* how many they are */
	int64_t wait_ms; /* 0: it does not wait, -1: for ever */
};
/* Asks for the memory of the version again, and waits for it. Sets *ret, whose lease is this one; the caller calls grant_close_fds. After an
 * error the lease is parked, or gpuwmd takes it for one that is awake: lease_park mends that. */
struct grant;
int lease_unpark(struct gpuwm_client *client, struct lease *lease, const struct unpark_wish *wish,
		 struct grant *ret, struct error *error);
/* Returns the bytes of room that gpuwmd counts for the lease. */
uint64_t lease_room(struct gpuwm_client *client, const struct lease *lease);

/* ---- grants: a lease, and the descriptors that gpuwmd sent with it ---- */

struct grant {
	struct lease *lease; /* belongs to the client; the caller calls lease_release */
	struct gpuwm_version_info version; /* grant_describe sets its digests and tensors */
	struct part part; /* without segments if there is a copy */
	struct memory_copy *copy; /* malloced: what was asked for by CUDA IPC; NULL: descriptors */
	struct fork_hook hook; /* closes the descriptors in a child, which would keep the memory */
};

/* Reads the answer to get_handles or claim, and takes its descriptors over, on errors too. The caller holds fork_lock, and has
 * called fork_watch for the grant. Fails with -EPROTO and -ENOMEM. */
int grant_read(struct reply *reply, struct grant *grant, struct error *error);
/* For the fork_hook of a grant: closes the descriptors. */
void grant_in_child(void *grant);

/* Opens the index, compares it with the grant, and completes grant->version. Sets *ret_map, which the caller closes. */
int grant_describe(struct grant *grant, struct index_map *ret_map, struct error *error);

/* Closes the descriptors, and forgets the handles of a copy. The lease goes on. A second call does nothing. */
void grant_close_fds(struct grant *grant);

/* ---- asking for a grant (grant_ask.c) ------------------------------------- */

/* Asks for a lease. The caller took the options, by client_take_options. If they name no device and the version is on several, asks for
 * the device of the thread's CUDA context. */
int grant_take(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *options,
	       struct grant *ret, struct error *error);

/* The same by model@tag. If the version is not there and no other session builds it, the client gets the claim: returns 1, and sets
 * *ret_round to the round of the connection on which gpuwmd has the claim. */
int grant_claim(struct gpuwm_client *client, const char *name, const struct gpuwm_attach_options *options,
		struct grant *ret, uint64_t *ret_round, struct error *error);

#endif
