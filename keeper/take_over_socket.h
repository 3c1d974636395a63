/* The socket of --take-over. The next keeper connects to it. A keeper hands the socket and its lock over with everything else,
 * so the file, whose mode is 0600, stays the same from keeper to keeper.
 *
 * The keeper that holds the lock on PATH.lock is in charge. A lock of flock(2) belongs to the open file and not to a process, so
 * the lock ends when no keeper has the descriptor any more. */
#ifndef GPUWM_KEEPER_TAKE_OVER_SOCKET_H
#define GPUWM_KEEPER_TAKE_OVER_SOCKET_H

#include <stdbool.h>

struct take_over_socket {
	int listener, lock; /* -1: none */
};

/* Connects to the keeper that listens at `path`, or begins to listen there itself if there is none. While another keeper
 * holds the lock and does not listen, because it is ending, the function waits for its end.
 *
 * Returns 1 and sets *ret_peer, the connection to the other keeper. Returns 0 if no keeper is there: *ret has the socket and
 * its lock. Fails with -errno, and logs why; with -ECANCELED if the keeper was told to stop meanwhile. */
int take_over_socket_find(struct take_over_socket *ret, const char *path, int *ret_peer);

/* Accepts a connection. The peer must be a process of the keeper's own user or of root: others are told NO, and the log says
 * so. Returns the descriptor, or -1. */
int take_over_socket_accept(const struct take_over_socket *socket);

/* Closes both. The file stays, since another keeper may listen there. */
void take_over_socket_close(struct take_over_socket *socket);

/* Returns whether SIGTERM or SIGINT waits for the keeper, which blocks them. */
bool stop_is_pending(void);

#endif
