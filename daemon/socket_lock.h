/* A socket's path belongs to one gpuwmd at a time: to whoever holds a lock on PATH.lock, or listens at PATH.
 *
 * A gpuwmd that was killed keeps both for as long as the kernel closes its memory, and answers nobody. The next one
 * waits for its end. It knows a gpuwmd that serves by an answer to hello. */
#ifndef GPUWM_DAEMON_SOCKET_LOCK_H
#define GPUWM_DAEMON_SOCKET_LOCK_H

#include "../proto/errors.h"

#include <stdint.h>

/* Opens and locks PATH.lock. While another process holds the lock and does not answer at PATH, the call waits, at most
 * wait_ms, and logs once for which process. Sets *ret_lock, which the caller closes.
 * -EADDRINUSE: another gpuwmd answers, or the process did not let go in time; -errno: the file can't be opened or
 * locked. */
int socket_lock_take(const char *path, uint64_t wait_ms, int *ret_lock, struct error *error);

/* For who holds the lock: waits in the same way until nobody listens at PATH. A gpuwmd that got its sockets from systemd
 * listens without the lock. -EADDRINUSE as above, or the socket is another program's. */
int socket_lock_check_unserved(const char *path, uint64_t wait_ms, struct error *error);

#endif
