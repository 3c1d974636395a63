/* The two sockets: bound here under a lock, or handed over by systemd. */
#ifndef GPUWM_DAEMON_LISTENER_H
#define GPUWM_DAEMON_LISTENER_H

#include "../proto/errors.h"
#include "session.h"

struct inherited;
struct listener;

/* Opens the socket of a kind (worker or admin), but accepts nothing yet: who connects waits. It takes
 * what a unit passes; else its own of the last gpuwmd, if that is still where the configuration wants it; else
 * it makes one. Own sockets: waits for a gpuwmd that is ending (see socket_lock.h); -EADDRINUSE when
 * another one serves the path or does not end (the socket is left alone), -EEXIST when something else is at the path, -ENOENT for an unknown group. */
int listener_open(struct server *server, enum session_kind kind, struct inherited *left, struct listener **ret,
		  struct error *error);
/* Gives an own socket to the fd store, in place of one that was given up: who connects while gpuwmd restarts waits. */
int listener_keep(struct listener *listener, struct error *error);
/* Accepts from now on. Negative: the socket can't be watched. */
int listener_start(struct listener *listener, struct error *error);
/* Accepts no more: who connects from now on waits for the next gpuwmd, where the socket outlives this one. */
void listener_stop(struct listener *listener);
/* Unlinks an own socket; the memory goes with its last close callback. NULL is fine. */
struct listener *listener_close(struct listener *listener);

#endif
