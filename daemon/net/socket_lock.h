/* A socket's path belongs to one gpuwmd at a time: to the one that holds a lock on PATH.lock, or that listens at PATH.
 *
 * A gpuwmd that was killed keeps lock and socket until the kernel has closed its memory, and answers nobody meanwhile.
 * The next gpuwmd waits for that end. A gpuwmd that answers hello is serving, and is not waited for. */
#ifndef GPUWM_DAEMON_SOCKET_LOCK_H
#define GPUWM_DAEMON_SOCKET_LOCK_H

#include "../../base/errors.h"

#include <stdint.h>

/* Opens and locks PATH.lock. While another process holds the lock and does not answer at PATH, the function waits, at most
 * wait_ms, and logs once which process it waits for. Sets *ret_lock, which the caller closes.
 * -EADDRINUSE: another gpuwmd answers, or the process still holds the lock after wait_ms; any other -errno: the file
 * can't be opened or locked. */
int socket_lock_take(const char *path, uint64_t wait_ms, int *ret_lock, struct error *error);

/* Waits in the same way until no process listens at PATH. Call it with the lock held: a gpuwmd that got its sockets from
 * systemd listens without the lock. -EADDRINUSE: as above, or another program listens at PATH. */
int socket_lock_check_unserved(const char *path, uint64_t wait_ms, struct error *error);

#endif
