/* What gpuwmd does when a claim ends: it elects the next session that waits for the name, or gives the waiting sessions
 * the version that was built. The table of claims itself (ledger/claim.h) knows no loop and no sessions. */
#ifndef GPUWM_DAEMON_CLAIMS_H
#define GPUWM_DAEMON_CLAIMS_H

#include "../work.h"

/* Call when gpuwmd begins to serve. For the configured grace time, gpuwmd reserves each name that was claimed before
 * the restart for the uid that claimed it. Sessions of other users wait for the name. */
void claims_begin_grace(struct work *work);
/* Saves the claims if they have changed since they were saved. Call it before a session learns of a claim, and before the
 * loop sleeps: one write then serves all claims that have ended. */
void claims_settle(struct work *work);
/* Gives the session a claim that is reserved for its user. Fails with -EACCES if the claim is reserved for another user. */
int claims_take_back(struct work *work, struct session *session, struct claim *claim, struct error *error);

/* Gives the session the claim of a name that has none. Fails with -EACCES, -EDQUOT and -ENOMEM. */
int claims_elect(struct work *work, struct session *session, const struct ref *name, struct error *error);

/* Checks that the session may begin a publish of this name. Fails with -EBUSY if another session claims the name; the message
 * says which. */
int claims_check(const struct work *work, const struct session *session, const struct ref *name,
		 struct error *error);
/* The session has begun this publish. If the session claims the name, the claim ends with the publish. */
void claims_begun(struct work *work, const struct session *session, const struct ref *name,
		  const struct version_id *publish);
/* The version is ready or has failed: ends its claim, and wakes the sessions that wait for it. */
void claims_concluded(struct work *work, const struct version *version);
/* Ends a claim. The session that has waited longest for the name gets the next one. */
void claims_end(struct work *work, struct claim *claim);
/* Ends all claims of a session that leaves. When gpuwmd stops, they stay reserved for the next gpuwmd. */
void claims_drop(struct work *work, struct session *session);

/* Sets the error for a session that has waited too long: the message says who builds the version. Returns -ETIMEDOUT. */
int claims_taken(const struct work *work, const struct claim *claim, struct error *error);
/* Write `claims: [{model, tag, …}]`: the claims of a session, or all claims that the session may see. model NULL: of every
 * model. */
void put_claims_of(struct message_writer *w, const struct session *session);
void put_claims(struct message_writer *w, struct session *session, const char *model);

#endif
