/* What gpuwmd grants: a lease and the descriptors that came with it. */
#ifndef GPUWM_LIB_GRANT_H
#define GPUWM_LIB_GRANT_H

#include "lease.h"
#include "../../proto/index.h"

struct grant_segment {
	int fd;
	uint64_t bytes;
};

struct grant {
	struct lease *lease; /* the client's; lease_release is the caller's to call */
	struct gpuwm_version_info version; /* digests, tensors: after grant_describe */
	int index_fd;
	uint64_t index_bytes;
	struct grant_segment *segments;
	struct fork_hook hook; /* a child that kept the descriptors would keep the memory */
};

/* Asks for a lease. options may be NULL. Where the device is left open and the
 * version is on several, the one of the thread's CUDA context is asked for. */
int grant_take(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *options,
	       struct grant *ret, struct error *error);

/* The same by model@tag, or this client becomes the one who builds it: 1, with the round of the connection
 * that the claim counts on. */
int grant_claim(struct gpuwm_client *client, const char *name, const struct gpuwm_attach_options *options,
		struct grant *ret, uint64_t *ret_round, struct error *error);

/* Opens the index, compares it with the grant, and completes grant->version. */
int grant_describe(struct grant *grant, struct index_map *ret_map, struct error *error);

/* Closes the descriptors; the lease goes on. Twice is fine. */
void grant_close_fds(struct grant *grant);

#endif
