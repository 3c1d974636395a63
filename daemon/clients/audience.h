/* Subscribers, and their turns: events are sent in the time of those who asked for them. A uid's subscribers share
 * one task, so that an event costs the loop no more than one step a uid. */
#ifndef GPUWM_DAEMON_AUDIENCE_H
#define GPUWM_DAEMON_AUDIENCE_H

struct audience;
struct clients;
struct session;

/* The session gets the events after its event_seq from now on, also where it did so before. -ENOMEM. */
int audience_join(struct session *session);
/* Before the session's share is left. A session that never joined is fine. */
void audience_leave(struct session *session);
/* The session could not take an event, and now it can. */
void audience_resume(const struct session *session);
/* Wakes subscribers if there are new events. */
void audiences_tell(struct clients *clients);

#endif
