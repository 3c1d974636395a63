/* Closes descriptors. Closing the last descriptor of a memfd takes long, 57 ms a GiB, so the thread pool does it. */
#ifndef GPUWM_DAEMON_CLOSING_H
#define GPUWM_DAEMON_CLOSING_H

#include "registry.h"

#include <uv.h>

/* Closes descriptors (-1: none) on the thread pool. They are copied. If there is no memory, closes them at once. */
void closing_fds(uv_loop_t *loop, const int *fds, size_t count);
typedef void closing_done_fn(void *data);
/* The same, and calls `done` on the loop. */
void closing_fds_then(uv_loop_t *loop, const int *fds, size_t count, closing_done_fn *done, void *data);
/* Takes the descriptors of a part whose version has let go of its segments (version_let_go). Closes the index and the segments
 * that no other part holds. Then ends the part's uses of its segments, drops one use of the charge, and calls `done` on the
 * loop; charge and done may be NULL. */
void closing_part(uv_loop_t *loop, struct replica *part, struct shared_charge *shared, closing_done_fn *done,
		  void *data);

#endif
