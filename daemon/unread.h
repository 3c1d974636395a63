/* Sessions whose next packet waits until the peer has read the last: one
 * nested epoll instance, edge-triggered on writability, which the kernel signals at each read by the peer. */
#ifndef GPUWM_DAEMON_UNREAD_H
#define GPUWM_DAEMON_UNREAD_H

#include <uv.h>

struct session;
struct unread;

/* NULL: out of memory or descriptors. */
struct unread *unread_new(uv_loop_t *loop);
/* Closes its handle; the memory goes with the close callback. */
struct unread *unread_free(struct unread *unread);

/* session_flush is called each time the peer has read. The peer may have read before
 * this call: look again after it. -errno. */
int unread_watch(struct unread *unread, struct session *session);
/* Before the socket is closed. */
void unread_forget(struct unread *unread, struct session *session);

/* session_flush of every crowded session after a while, again and again until none is
 * (session->crowded_since). */
void unread_retry(struct unread *unread);

#endif
