/* gpuwm-peer's connection to gpuwmd, whose ordinary client it is: it sees and attaches what the rules for models let its user attach. */
#ifndef GPUWM_PEER_GPUWMD_H
#define GPUWM_PEER_GPUWMD_H

#include "listing.h"

#include "../include/gpuwm/client.h"

#include <pthread.h>

/* How long a peer's request waits for a gpuwmd that went away. The next gpuwmd starts within a second, and the peer has other nodes
 * to ask. */
#define GPUWMD_RESTART_MS 3000

struct gpuwmd {
	const char *socket; /* NULL: the usual one */
	gpuwm_lost_fn *lost;
	void *lost_data;
	pthread_mutex_t lock; /* held while the connection is made */
	struct gpuwm_client *client; /* NULL: no connection was made yet */
};

/* Fills *gpuwmd, without connecting. `lost` is called as in gpuwm_connect_options. */
void gpuwmd_begin(struct gpuwmd *gpuwmd, const char *socket, gpuwm_lost_fn *lost, void *lost_data);
void gpuwmd_end(struct gpuwmd *gpuwmd);

/* Connects, if there is no connection yet. Returns 0 and sets *ret_client, which *gpuwmd owns. Fails as gpuwm_connect does. Threads: any. */
int gpuwmd_client(struct gpuwmd *gpuwmd, struct gpuwm_client **ret_client, struct error *error);
/* Asks gpuwmd for its list of versions. Returns 0 and sets *ret, for listing_clear. Threads: any. */
int gpuwmd_list(struct gpuwmd *gpuwmd, struct listing *ret, struct error *error);
/* Sets *error to the library's last error in this thread. Returns its code. */
int gpuwmd_error(struct error *error);

#endif
