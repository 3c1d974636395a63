/* What a session holds, and what happens to it when the session goes. */
#ifndef GPUWM_DAEMON_HOLDINGS_H
#define GPUWM_DAEMON_HOLDINGS_H

#include <stdint.h>

struct work;
struct session;

/* Waiting requests go, leases end, what was not committed fails, a loader's
 * job fails. Called once, when the session ends. */
void holdings_drop(struct work *work, struct session *session);

/* A reply with a lease could not be sent: the lease ends, and the request is
 * answered with ETOOMANYREFS. */
void holdings_refuse(struct work *work, struct session *session, uint64_t lease, uint64_t request);

#endif
