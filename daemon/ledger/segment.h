/* Closes the descriptors of segments, and gives their budget back when the memory is free again. Closing the last descriptor of
 * a memfd takes long, 57 ms a GiB, so the thread pool does it. */
#ifndef GPUWM_DAEMON_SEGMENT_H
#define GPUWM_DAEMON_SEGMENT_H

#include "registry.h"

#include <uv.h>

/* A charge that several hold: descriptors that are being closed, a loader's process, the process of a dead publisher. It is given
 * back when the last of them lets go. */
struct shared_charge {
	struct budget_charge charge;
	unsigned uses;
	unsigned mapped; /* uses by revoked leases, whose holders may still map the memory */
};
/* Makes a shared charge with one use. The charge moves in. Returns NULL if there is no memory; then the charge stays where it
 * is. */
struct shared_charge *shared_charge_new(struct budget_charge *charge);
struct shared_charge *shared_charge_use(struct shared_charge *shared);
/* Ends one use. Returns NULL; NULL is fine. */
struct shared_charge *shared_charge_drop(struct shared_charge *shared);

/* Takes the descriptors of a part and closes them on the thread pool. Then drops one use of the charge and calls `done` on the
 * loop; both may be NULL. */
typedef void segment_done_fn(void *data);
void segment_close(uv_loop_t *loop, struct replica *replica, struct shared_charge *shared,
		   segment_done_fn *done, void *data);
/* The same for descriptors that are in no part. Frees `segments`. */
void segment_close_fds(uv_loop_t *loop, struct held_fd index, struct held_fd *segments, uint32_t count);

#endif
