/* The two sockets on which gpuwmd takes connections. gpuwmd binds them itself, under a lock, or systemd passes them. */
#ifndef GPUWM_DAEMON_LISTENER_H
#define GPUWM_DAEMON_LISTENER_H

#include "../../proto/errors.h"
#include "session.h"

struct inherited;
struct listener;

/* Opens the socket of a kind (worker or admin). It accepts no connection yet, so that peers wait in the queue.
 *
 * The socket is the first of these that is there:
 * - the socket that a systemd unit passes;
 * - the socket that the last gpuwmd bound and kept, if its path is still the configured one;
 * - a new one. Before gpuwmd binds it, gpuwmd waits for another one that is ending (socket_lock.h).
 *
 * Sets *ret, which the caller closes with listener_close. -EADDRINUSE: another gpuwmd serves the path, or does not end;
 * its socket stays. -EEXIST: a file that is no socket is at the path. -ENOENT: there is no group of the configured name. */
int listener_open(struct server *server, enum session_kind kind, struct inherited *left, struct listener **ret,
		  struct error *error);
/* Gives a socket that gpuwmd bound to the fd store, in place of the one that it no longer uses. So peers that connect while
 * gpuwmd restarts wait, and are not refused. */
int listener_keep(struct listener *listener, struct error *error);
/* Begins to accept connections. Negative: the loop can't watch the socket. */
int listener_start(struct listener *listener, struct error *error);
/* Accepts no more connections. If the socket outlives this gpuwmd, peers that connect from now on wait for the next one. */
void listener_stop(struct listener *listener);
/* Closes the socket. Unlinks it if gpuwmd bound it and listener_keep did not store it. Returns NULL; NULL is fine. The
 * memory is freed in the last close callback of libuv. */
struct listener *listener_close(struct listener *listener);

#endif
