/* Closing what keeps memory alive, which takes long (57 ms a GiB for a memfd),
 * and giving its budget back when the memory is really there again. */
#ifndef GPUWM_DAEMON_SEGMENT_H
#define GPUWM_DAEMON_SEGMENT_H

#include "registry.h"

#include <uv.h>

/* A charge that several must let go of: descriptors being closed, a loader's process, a dead
 * publisher's. The last one gives it back. */
struct shared_charge {
	struct budget_charge charge;
	unsigned uses;
	unsigned mapped; /* of them: revoked leases whose holders may still map the memory */
};
/* The charge moves in; one use. NULL: out of memory (the charge stays). */
struct shared_charge *shared_charge_new(struct budget_charge *charge);
struct shared_charge *shared_charge_use(struct shared_charge *shared);
/* Always NULL; NULL is fine. */
struct shared_charge *shared_charge_drop(struct shared_charge *shared);

/* Takes a replica's descriptors and closes them on the thread pool; then drops
 * one use of the charge (may be NULL) and calls done (may be NULL) on the loop. */
typedef void segment_done_fn(void *data);
void segment_close(uv_loop_t *loop, struct replica *replica, struct shared_charge *shared,
		   segment_done_fn *done, void *data);
/* The same for descriptors that never came into a replica; `segments` is freed. */
void segment_close_fds(uv_loop_t *loop, struct held_fd index, struct held_fd *segments, uint32_t count);

#endif
