/* A lease as gpuwmd grants it: the reply to get_handles, decoded. */
#ifndef GPUWM_LIB_LEASE_H
#define GPUWM_LIB_LEASE_H

#include "client.h"
#include "../../proto/index.h"

struct lease_segment {
	int fd;
	uint64_t bytes;
};

struct lease {
	uint64_t id;
	struct gpuwm_version_info version; /* digests, tensors: after lease_describe */
	int index_fd;
	uint64_t index_bytes;
	struct lease_segment *segments;
};

/* Asks for a lease. options may be NULL. Where the device is left open and the
 * version is on several, the one of the thread's CUDA context is asked for. */
int lease_take(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *options,
	       struct lease *ret, struct error *error);

/* Opens the index, compares it with the grant, and completes lease->version. */
int lease_describe(struct lease *lease, struct index_map *ret_map, struct error *error);

/* Closes the descriptors; the lease goes on. Twice is fine. */
void lease_close_fds(struct lease *lease);

/* Gives the lease back. -EIO, -ECONNRESET: gpuwmd could not be told. */
int lease_release(struct gpuwm_client *client, uint64_t id, struct error *error);

#endif
