/* What a session holds, and what happens to it when the session goes. */
#ifndef GPUWM_DAEMON_HOLDINGS_H
#define GPUWM_DAEMON_HOLDINGS_H

#include <stdint.h>

struct work;
struct session;

/* Call it once, when the session ends. Drops its waiting requests, ends its leases and claims, and fails the publishes that it has
 * not committed. If the session is a loader's, its job fails. */
void holdings_drop(struct work *work, struct session *session);

/* A reply with a lease could not be sent. Ends the lease, and answers the request with ETOOMANYREFS. */
void holdings_refuse(struct work *work, struct session *session, uint64_t lease, uint64_t request);

#endif
