/* Leases that an operator revoked. A revoked lease keeps no version: the version can be freed. But its holder may
 * still map the memory, so the bytes stay charged to the device until the holder releases the lease (the library does
 * so when it has unmapped) or its process has exited. */
#ifndef GPUWM_DAEMON_REVOKED_H
#define GPUWM_DAEMON_REVOKED_H

#include "../proto/message.h"
#include "segment.h"

struct server;
struct session;
struct revoked_table;

/* NULL: out of memory. */
struct revoked_table *revoked_table_new(struct server *server);
/* Forgets all of them; what they kept is given back. Always NULL; NULL is fine. */
struct revoked_table *revoked_table_free(struct revoked_table *table);

/* The lease ends, and its place in the table begins. The quota's charge moves: leases_per_uid bounds leases and revoked
 * leases together. A lease whose descriptors were not sent
 * yet is refused to the session instead. The caller frees the version if nothing holds it any more, saves, and calls
 * revoked_tell. -ENOMEM: the lease goes on. */
int revoked_add(struct server *server, struct lease *lease, struct error *error);
/* Tells the holders and the subscribers of all that were revoked since the last call. leases: where each is put as a
 * map; NULL: nowhere. */
void revoked_tell(struct server *server, const char *reason, struct message_writer *leases);

/* True when the lease was revoked, and the session may release it: one of the process that held it. It is forgotten. */
bool revoked_release(struct server *server, const struct session *session, uint64_t lease);
/* Whether a lease of this number was revoked and may still be mapped. */
bool revoked_find(const struct server *server, uint64_t lease);
/* The session ends. Its process may live on: then its pidfd tells when it is gone. Without a pidfd the end of the
 * session counts. */
void revoked_leave(struct session *session);
/* A part of a version is closed: each that may still map it keeps a use of the grant (NULL is fine). */
void revoked_keep(struct version *version, uint32_t replica, struct grant *grant);

uint64_t revoked_count(const struct server *server);
/* In `clients`: those of a session, into its array of leases; sessions that have ended, into the array of clients. */
void put_revoked_of(struct message_writer *w, const struct session *session);
void put_revoked_gone(struct message_writer *w, const struct server *server);

#endif
