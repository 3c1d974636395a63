/* What gpuwmd does when a claim ends: it elects the next session that waits for the name, or gives the waiting sessions
 * the version that was built. The table of claims itself (claim.h) knows no loop and no sessions. */
#ifndef GPUWM_DAEMON_CLAIMS_H
#define GPUWM_DAEMON_CLAIMS_H

#include "work.h"

/* Call when gpuwmd begins to serve. For the configured grace time, gpuwmd reserves each name that was claimed before
 * the restart for the uid that claimed it. Sessions of other users wait for the name. */
void claims_begin_grace(struct work *work);
/* Saves the claims if they have changed since they were saved. Call it before a session learns of a claim, and before the
 * loop sleeps: one write then serves all claims that have ended. */
void claims_settle(struct work *work);
/* Gives the session what is reserved for its user. -EACCES: it is another user's. */
int claims_take_back(struct work *work, struct session *session, struct claim *claim, struct error *error);

/* The session becomes the one who builds it. -EACCES, -EDQUOT, -ENOMEM; the name must be free. */
int claims_elect(struct work *work, struct session *session, const struct ref *name, struct error *error);

/* 0: the session may begin a publish of this name. -EBUSY: another one has claimed it, and who. */
int claims_check(const struct work *work, const struct session *session, const struct ref *name,
		 struct error *error);
/* What it claimed, if it did, is what this publish makes. */
void claims_begun(struct work *work, const struct session *session, const struct ref *name,
		  const struct version_id *publish);
/* The version is ready or has failed, and so its claim ends. Wakes who waits for it. */
void claims_concluded(struct work *work, const struct version *version);
/* The claim ends: who waited longest for its name is the next. */
void claims_end(struct work *work, struct claim *claim);
/* The same for all of a session that leaves. When gpuwmd stops, they stay reserved for the next one to find. */
void claims_drop(struct work *work, struct session *session);

/* -ETIMEDOUT: who builds it. */
int claims_taken(const struct work *work, const struct claim *claim, struct error *error);
/* claims: [{model, tag, …}]: of a session, or all that the session sees; model NULL: of every model. */
void put_claims_of(struct message_writer *w, const struct session *session);
void put_claims(struct message_writer *w, struct session *session, const char *model);

#endif
