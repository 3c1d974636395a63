/* Leases, with the addresses that their holders announce and the events that load balancers follow; what a session holds; and leases
 * that were revoked. */
#ifndef GPUWM_DAEMON_LEASES_H
#define GPUWM_DAEMON_LEASES_H

#include "../work.h"
#include "../../../proto/wire/message.h"
#include "../../ledger/registry.h"

#include <stdint.h>

struct revoked_table;
struct session;

/* Sets the address at which the lease's holder serves requests; NULL: it serves none any more. Sends an event if the address is
 * another one than before, unless the version has no name. Fails with -EDQUOT if the holder's session has
 * ADDRESSES_PER_SESSION_MAX, and -ENOMEM. */
int leases_announce(struct work *work, struct lease *lease, const char *address, struct error *error);

/* Parks a lease, whose holder maps nothing any more: its version may leave its devices, and its address takes no requests. Gives its room
 * back, but for the bytes `room` that the holder keeps. A parked one is fine, and does not wait to be awake any more. Fails with -EINVAL
 * if nobody could bring the version back (it has no name, or is cached) or `room` is more than the holder had, and with -ENOTSUP if the
 * lease is of a copy. */
int leases_park(struct work *work, struct lease *lease, uint64_t room, struct error *error);
/* Ends that: the version lies on its devices, and stays there. The lease has another number then. One that is not parked is fine. If
 * unparks_ask has granted something, the lease has it. */
void leases_unpark(struct work *work, struct lease *lease);
/* The holder could not be told of that: it is parked as before. */
void leases_unpark_undo(struct work *work, struct lease *lease);

/* Ends a lease. If it has an address, sends an event, but not while gpuwmd stops: then the holder goes on with the next gpuwmd.
 * Returns the lease's version, which may be unused now. */
struct version *leases_end(struct work *work, struct lease *lease);

/* ---- what a session holds, and what happens to it when the session goes: holdings.c ---- */

/* Call it once, when the session ends. Drops its waiting requests, ends its leases and claims, and fails the publishes that it has
 * not committed. If the session is a loader's, its job fails. */
void holdings_drop(struct work *work, struct session *session);

/* A reply with a lease could not be sent. Ends the lease, and answers the request with ETOOMANYREFS. */
void holdings_refuse(struct work *work, struct session *session, uint64_t lease, uint64_t request);

/* ---- revoked leases: revoked*.c ----
 * Leases that an operator revoked, or whose copy is gone. A revoked lease keeps no version: the version can be freed. But its holder may
 * still map the memory, so the bytes stay charged to the device until the holder releases the lease (the library does
 * so when it has unmapped) or its process has exited. */

/* Makes a table. Returns NULL if there is no memory. */
struct revoked_table *revoked_table_new(struct work *work);
/* Forgets all revoked leases, gives back their charges, and frees the table. Returns NULL; NULL is fine. */
struct revoked_table *revoked_table_free(struct revoked_table *table);

/* Ends the lease and enters it into the table, with its charge: leases_per_uid bounds leases and revoked leases together.
 * If the lease's descriptors were not sent yet, the session's request is refused instead. The caller then frees the version
 * if nothing else holds it, saves the state, and calls revoked_tell. -ENOMEM: the lease goes on. */
int revoked_add(struct work *work, struct lease *lease, struct error *error);
/* Tells the holders and the subscribers of all leases that were revoked since the last call. Writes a map for each lease to
 * `leases`, unless that is NULL. */
void revoked_tell(struct work *work, const char *reason, struct message_writer *leases);

/* Forgets a revoked lease that its own process releases. Returns false if the lease was not revoked, or if the session's
 * process is not the one that held it. */
bool revoked_release(struct work *work, const struct session *session, uint64_t lease);
/* Returns whether the lease with this number was revoked and its memory may still be mapped. */
bool revoked_find(const struct work *work, uint64_t lease);
/* Call when the session ends. Its process may live on, with the memory mapped: gpuwmd then watches the process's pidfd.
 * Without a pidfd the end of the session counts as the end of the process. */
void revoked_leave(struct session *session);
/* A part of a version is being closed. Hands a use of the charge (NULL is fine) to each revoked lease that may still map it. */
void revoked_keep(struct version *version, uint32_t replica, struct shared_charge *shared);

/* Adds to the text which processes may still map memory of the device by revoked leases, a few of them: ": python (pid 7, uid 1000)". */
void revoked_name_mappers(const struct work *work, const struct device *device, char *text, size_t size);

uint64_t revoked_count(const struct work *work);
/* Write revoked leases for the method `clients`: those of a session into its array of leases, and those whose sessions have
 * ended into the array of clients. */
void put_revoked_of(struct message_writer *w, const struct session *session);
void put_revoked_gone(struct message_writer *w, const struct work *work);

#endif
