/* Leases and the addresses that their holders announce, with the events that load balancers follow. */
#ifndef GPUWM_DAEMON_LEASES_H
#define GPUWM_DAEMON_LEASES_H

#include "../work.h"

/* Sets the address at which the lease's holder serves requests; NULL: it serves none any more. Sends an event if the address is
 * another one than before, unless the version has no name. Fails with -EDQUOT if the holder's session has
 * ADDRESSES_PER_SESSION_MAX, and -ENOMEM. */
int leases_announce(struct work *work, struct lease *lease, const char *address, struct error *error);

/* Ends a lease. If it has an address, sends an event, but not while gpuwmd stops: then the holder goes on with the next gpuwmd.
 * Returns the lease's version, which may be unused now. */
struct version *leases_end(struct work *work, struct lease *lease);

#endif
