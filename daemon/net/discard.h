/* Closes sockets of refused connections on the thread pool. Closing a socket frees everything that its peer has sent, and a peer
 * can make that take up to 0.1 ms. */
#ifndef GPUWM_DAEMON_DISCARD_H
#define GPUWM_DAEMON_DISCARD_H

#include "../../base/limits.h"

#include <uv.h>

struct discard;

/* Returns NULL if there is no memory. */
struct discard *discard_new(uv_loop_t *loop);
/* Closes the sockets that wait. The memory is freed when the thread pool has ended its work. Returns NULL; NULL is fine. */
struct discard *discard_free(struct discard *discard);

/* Takes the socket over and closes it later. */
void discard_socket(struct discard *discard, int sock);

#endif
