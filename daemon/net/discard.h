/* Sockets of refused connections, closed on the thread pool: to close one frees all that its peer has sent already,
 * which takes as long as the peer likes to make it, up to 0.1 ms. */
#ifndef GPUWM_DAEMON_DISCARD_H
#define GPUWM_DAEMON_DISCARD_H

#include "../../proto/limits.h"

#include <uv.h>

struct discard;

/* NULL: out of memory. */
struct discard *discard_new(uv_loop_t *loop);
/* Closes what waits. The memory goes when the thread pool is done with it. NULL is fine. */
struct discard *discard_free(struct discard *discard);

/* Takes the socket over. */
void discard_socket(struct discard *discard, int sock);

#endif
