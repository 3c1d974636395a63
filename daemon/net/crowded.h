/* Sessions whose descriptors the kernel does not take, because too many lie unread in the connections of gpuwmd's peers. The
 * kernel does not say when those peers have read them, so each session tries again after a while, in its share's time. */
#ifndef GPUWM_DAEMON_CROWDED_H
#define GPUWM_DAEMON_CROWDED_H

#include <uv.h>

struct crowded;
struct session;

/* Returns NULL if there is no memory. */
struct crowded *crowded_new(uv_loop_t *loop);
/* Call it when no session is in it any more. The close callback frees the memory. Returns NULL; NULL is fine. */
struct crowded *crowded_free(struct crowded *crowded);

/* Makes session->task, which tries again, due every few milliseconds. A second call does nothing. */
void crowded_add(struct crowded *crowded, struct session *session);
/* A second call does nothing. */
void crowded_remove(struct session *session);

#endif
