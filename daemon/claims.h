/* Claims with all that follows from their end: who waited for them is the next, or gets what was built.
 * Between the table of claims, which knows no loop, and the methods. */
#ifndef GPUWM_DAEMON_CLAIMS_H
#define GPUWM_DAEMON_CLAIMS_H

#include "server.h"

/* The server begins to serve. What was claimed before a restart is reserved for its user, for the grace time as it is
 * configured then: whoever else claims it waits. */
void claims_begin_grace(struct server *server);
/* What a restart would find is saved if it has changed: before a session is told of it, and before the loop sleeps, when
 * one write serves all claims that have ended. */
void claims_settle(struct server *server);
/* Gives the session what is reserved for its user. -EACCES: it is another user's. */
int claims_take_back(struct session *session, struct claim *claim, struct error *error);

/* The session becomes the one who builds it. -EACCES, -EDQUOT, -ENOMEM; the name must be free. */
int claims_elect(struct session *session, const struct ref *name, struct error *error);

/* 0: the session may begin a publish of this name. -EBUSY: another one has claimed it, and who. */
int claims_check(const struct server *server, const struct session *session, const struct ref *name,
		 struct error *error);
/* What it claimed, if it did, is what this publish makes. */
void claims_begun(struct server *server, const struct session *session, const struct ref *name,
		  const struct version_id *publish);
/* The version is ready or has failed, and so its claim ends. Wakes who waits for it. */
void claims_concluded(struct server *server, const struct version *version);
/* The claim ends: who waited longest for its name is the next. */
void claims_end(struct server *server, struct claim *claim);
/* The same for all of a session that leaves. When gpuwmd stops, they stay reserved for the next one to find. */
void claims_drop(struct session *session);

/* -ETIMEDOUT: who builds it. */
int claims_taken(const struct server *server, const struct claim *claim, struct error *error);
/* claims: [{model, tag, …}]: of a session, or all that the session sees; model NULL: of every model. */
void put_claims_of(struct message_writer *w, const struct session *session);
void put_claims(struct message_writer *w, struct session *session, const char *model);

#endif
