/* gpuwm-peer's connection to gpuwmd, whose ordinary client it is: it sees and attaches what the rules for models let its user attach. */
#ifndef GPUWM_PEER_GPUWMD_H
#define GPUWM_PEER_GPUWMD_H

#include "messages.h"

#include "../include/gpuwm/client.h"

#include <jansson.h>
#include <pthread.h>

/* The versions of gpuwmd that gpuwm-peer may attach: gpuwmd's answer to `list`, without versions that can't be taken. */
struct listing {
	json_t *answer;
	json_t **versions; /* those that are ready and have a name */
	size_t count;
};

/* Reads the JSON of gpuwm_query. Returns 0 and sets *ret, for listing_clear. Fails with -ENOMEM, and with -EPROTO. */
int listing_read(const char *json, struct listing *ret, struct error *error);
void listing_clear(struct listing *listing);

/* Sets *ret to the version at `position`, whose texts belong to the listing. aliases: room for PEER_ALIASES_MAX. */
struct listed {
	struct version_id id, companion_of;
	struct digest content;
	const char *aliases[PEER_ALIASES_MAX];
	struct peer_version version; /* its pointers lead to the members above, and into the listing */
};
void listing_at(const struct listing *listing, size_t position, struct listed *ret);

/* Returns the position of the version that `ref` names. Fails with -ENOENT, and with -EINVAL if `ref` is no reference. */
int64_t listing_find(const struct listing *listing, const char *ref, struct error *error);

/* Returns the device that has a ready part of this rank of the version at `position`. Returns NULL if no device has one. */
const char *listing_device(const struct listing *listing, size_t position, uint64_t rank);

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
