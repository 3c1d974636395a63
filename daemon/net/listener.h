/* The two sockets on which gpuwmd takes connections. gpuwmd binds them itself, under a lock, or systemd passes them. */
#ifndef GPUWM_DAEMON_LISTENER_H
#define GPUWM_DAEMON_LISTENER_H

#include "../../base/errors.h"
#include "session.h"

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct listener;
struct net;

/* The bytes of the path that the kernel takes, and a zero. */
#define LISTENER_PATH_BYTES (sizeof(((struct sockaddr_un *)0)->sun_path) + 1)

/* Sockets of one kind that an earlier program left; -1: none. */
struct listener_sockets {
	int passed; /* by a systemd unit */
	int kept; /* by the last gpuwmd, which bound it */
};

/* Opens the socket of a kind (worker or admin). It accepts no connection yet, so that peers wait in the queue.
 *
 * The socket is the first of these that is there:
 * - the socket that a systemd unit passed;
 * - the socket that the last gpuwmd bound and kept, if its path is still the configured one;
 * - a new one. Before gpuwmd binds it, gpuwmd waits for another one that is ending (socket_lock_take).
 *
 * config_check_machine has judged its place. Takes both sockets in `left` over in any case. Sets *ret, which the caller closes with
 * listener_close. -EADDRINUSE: another gpuwmd serves the path, and -EBUSY: it does not answer and does not end;
 * its socket stays. -EEXIST: a file that is no socket is at the path. -EINVAL: there is no group of the configured name. */
int listener_open(struct net *net, enum session_kind kind, const struct listener_sockets *left,
		  struct listener **ret, struct error *error);
/* Writes the path that a socket is bound to; "" if the kernel does not say. Returns 0 or -errno. */
int listener_path_of(int sock, char path[LISTENER_PATH_BYTES]);
/* The same of the listener's socket. */
void listener_path(const struct listener *listener, char path[LISTENER_PATH_BYTES]);

/* Returns the socket if gpuwmd bound it in this process, or -1. It stays the listener's. */
int listener_own_socket(const struct listener *listener);
/* Whether the kept socket of listener_open is not the one that is served. */
bool listener_gave_up(const struct listener *listener);
/* Call when the fd store has the socket that gpuwmd bound: peers that connect while gpuwmd restarts wait, and are not
 * refused. listener_close then leaves the socket's file. */
void listener_outlives(struct listener *listener);
/* Begins to accept connections. Negative: the loop can't watch the socket. */
int listener_start(struct listener *listener, struct error *error);
/* Accepts no more connections. If the socket outlives this gpuwmd, peers that connect from now on wait for the next one. */
void listener_stop(struct listener *listener);
/* Closes the socket. Unlinks it if gpuwmd bound it, unless listener_outlives was called. Returns NULL; NULL is fine. The
 * memory is freed in the last close callback of libuv. */
struct listener *listener_close(struct listener *listener);

/* ---- the lock of a path: socket_lock.c ----
 * A socket's path belongs to one gpuwmd at a time: to the one that holds a lock on PATH.lock, or that listens at PATH.
 *
 * A gpuwmd that was killed keeps lock and socket until the kernel has closed its memory, and answers nobody meanwhile.
 * The next gpuwmd waits for that end. A gpuwmd that answers hello is serving, and is not waited for. */

/* Opens and locks PATH.lock. While another process holds the lock and does not answer at PATH, the function waits, at most
 * wait_ms, and logs once which process it waits for. Sets *ret_lock, which the caller closes.
 * -EADDRINUSE: another gpuwmd answers, or the process still holds the lock after wait_ms; any other -errno: the file
 * can't be opened or locked. */
int socket_lock_take(const char *path, uint64_t wait_ms, int *ret_lock, struct error *error);

/* Waits in the same way until no process listens at PATH. Call it with the lock held: a gpuwmd that got its sockets from
 * systemd listens without the lock. -EADDRINUSE: as above, or another program listens at PATH. */
int socket_lock_check_unserved(const char *path, uint64_t wait_ms, struct error *error);

#endif
