/* A version's life with all that follows from it: descriptors and budgets,
 * events, and those who wait. Between the ledger, which knows no loop, and the methods. */
#ifndef GPUWM_DAEMON_VERSIONS_H
#define GPUWM_DAEMON_VERSIONS_H

#include "server.h"

/* The publish's parts are all here: the version is ready, its aliases move,
 * the publish ends (its pointer is dead). Otherwise nothing. Why an alias was not moved
 * is then the ready version's error, and that of its jobs. */
int versions_complete(struct server *server, struct publish *publish, struct error *error);

/* The publish fails, with all its parts; its pointer is dead. dead: the session
 * of a publisher whose process may still hold memory; NULL: none. */
void versions_fail(struct server *server, struct publish *publish, const struct error *reason,
		   const struct session *dead);

/* Every publish that has an uncommitted part of this publisher (a session or a
 * job) fails. dead: as above. */
void versions_fail_of(struct server *server, const void *publisher, const struct error *reason,
		      const struct session *dead);

/* Moves the alias, tells it, and frees what it made unused. */
int versions_swap(struct server *server, const char *model, const char *alias, struct version *to,
		  const struct version_id *expect, struct swap_result *ret, struct error *error);

/* No new leases; freed when unused (perhaps before this returns: *ret_freed tells
 * that closing began). */
int versions_retire(struct server *server, struct version *version, bool *ret_freed, struct error *error);

/* Frees the version if nothing holds it any more: called after each lease or pin that went. */
void versions_free_unused(struct server *server, struct version *version);

/* drain: no aliases, everything retired, what is unused freed. */
void versions_retire_all(struct server *server);

#endif
