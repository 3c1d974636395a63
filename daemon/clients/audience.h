/* Subscribers. gpuwmd sends events in the time of the users who subscribed. All subscribers of a uid share one task, so an event
 * costs the loop at most one step for each uid. */
#ifndef GPUWM_DAEMON_AUDIENCE_H
#define GPUWM_DAEMON_AUDIENCE_H

struct audience;
struct clients;
struct session;

/* Sends the session all events after its event_seq from now on. A second call is fine. Fails with -ENOMEM. */
int audience_join(struct session *session);
/* Ends that. Call it before the session leaves its share. A session that never joined is fine. */
void audience_leave(struct session *session);
/* The kernel did not take an event of the session, and would take it now. */
void audience_resume(const struct session *session);
/* Wakes subscribers if there are new events. */
void audiences_tell(struct clients *clients);

#endif
