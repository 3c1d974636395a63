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

/* Reads the answer to get_handles or claim, and takes its descriptors, which are the grant's then: also where this fails.
 * Call it with fork_lock held, with the grant watched over forks. -EPROTO, -ENOMEM. */
int grant_read(struct reply *reply, struct grant *grant, struct error *error);
/* For the fork_hook of a grant: closes the descriptors. */
void grant_in_child(void *grant);

/* Opens the index, compares it with the grant, and completes grant->version. */
int grant_describe(struct grant *grant, struct index_map *ret_map, struct error *error);

/* Closes the descriptors; the lease goes on. Twice is fine. */
void grant_close_fds(struct grant *grant);

#endif
