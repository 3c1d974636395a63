/* Sessions whose descriptors the kernel does not take, since too many lie unread in the connections of gpuwmd's
 * peers. Nothing tells when those peers have read, so the sessions try again after a while, each in its share's time. */
#ifndef GPUWM_DAEMON_CROWDED_H
#define GPUWM_DAEMON_CROWDED_H

#include <uv.h>

struct crowded;
struct session;

/* NULL: out of memory. */
struct crowded *crowded_new(uv_loop_t *loop);
/* When nobody is in it any more. The memory goes with the close callback. NULL is fine. */
struct crowded *crowded_free(struct crowded *crowded);

/* Makes session->task, which is to try again, due every few milliseconds. Twice is fine. */
void crowded_add(struct crowded *crowded, struct session *session);
/* Twice is fine. */
void crowded_remove(struct session *session);

#endif
