/* The address at which this process serves requests with a lease. gpuwmd tells it to load balancers. It goes with the lease: the
 * client sends it again when it takes the lease again. */
#ifndef GPUWM_LIB_ANNOUNCE_H
#define GPUWM_LIB_ANNOUNCE_H

#include "lease.h"

/* Returns 0 if the text is an address, or NULL, else -EINVAL. */
int announce_check(const char *address, struct error *error);

/* Announces the address; NULL: none any more. wait_ms: how long to wait for the next gpuwmd if there is none; -1: for ever. Fails with the code of gpuwm_lost if the lease
 * is lost, with -EINVAL, -EDQUOT and -ENOSYS (gpuwmd is older than addresses): then the address before holds. Fails with
 * -ECONNREFUSED: the client announces the address with the next connection. */
int lease_announce(struct gpuwm_client *client, struct lease *lease, const char *address, int64_t wait_ms,
		   struct error *error);

/* Sets ret to the lease's address; "": it has none. */
void lease_address(struct gpuwm_client *client, const struct lease *lease, char ret[ADDRESS_BYTES_MAX + 1]);

#endif
