/* A grant: a lease, and the descriptors that gpuwmd sent with it. */
#ifndef GPUWM_LIB_GRANT_H
#define GPUWM_LIB_GRANT_H

#include "lease.h"
#include "../../../memory/memory_ipc.h"
#include "../../../proto/index/index.h"
#include "../../../proto/wire/part.h"

struct grant {
	struct lease *lease; /* belongs to the client; the caller calls lease_release */
	struct gpuwm_version_info version; /* grant_describe sets its digests and tensors */
	struct part part; /* without segments if there is a copy */
	struct memory_copy *copy; /* malloced: what was asked for by CUDA IPC; NULL: descriptors */
	struct fork_hook hook; /* closes the descriptors in a child, which would keep the memory */
};

/* Reads the answer to get_handles or claim, and takes its descriptors over, on errors too. The caller holds fork_lock, and has
 * called fork_watch for the grant. Fails with -EPROTO and -ENOMEM. */
int grant_read(struct reply *reply, struct grant *grant, struct error *error);
/* For the fork_hook of a grant: closes the descriptors. */
void grant_in_child(void *grant);

/* Opens the index, compares it with the grant, and completes grant->version. Sets *ret_map, which the caller closes. */
int grant_describe(struct grant *grant, struct index_map *ret_map, struct error *error);

/* Closes the descriptors, and forgets the handles of a copy. The lease goes on. A second call does nothing. */
void grant_close_fds(struct grant *grant);

/* ---- asking for one ------------------------------------------------------ */

/* Asks for a lease. options may be NULL. If they name no device and the version is on several, asks for the device of the thread's CUDA
 * context. */
int grant_take(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *options,
	       struct grant *ret, struct error *error);

/* The same by model@tag. If the version is not there and no other session builds it, the client gets the claim: returns 1, and sets
 * *ret_round to the round of the connection on which gpuwmd has the claim. */
int grant_claim(struct gpuwm_client *client, const char *name, const struct gpuwm_attach_options *options,
		struct grant *ret, uint64_t *ret_round, struct error *error);

#endif
