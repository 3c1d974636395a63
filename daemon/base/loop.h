/* What gpuwmd's loop needs from the kernel: threads, and watches of descriptors. */
#ifndef GPUWM_DAEMON_LOOP_H
#define GPUWM_DAEMON_LOOP_H

#include "../../base/errors.h"

#include <uv.h>

/* ---- threads ----
 * libuv's pool, on which gpuwmd closes descriptors and talks to the service manager. libuv makes the pool at its first use, and
 * aborts the process if it can't. So gpuwmd tries it at its start. */

/* Makes the pool. `work` must stay valid until the loop has turned. -EAGAIN or -ENOMEM: a thread can't be made; the error
 * names the limits that are set. */
int threads_begin(uv_loop_t *loop, uv_work_t *work, struct error *error);

/* ---- watches ----
 * The error of a loop that can't watch a descriptor. */

/* Sets *error to say that gpuwmd could not watch `what`, for the reason `code`, a negative errno. Returns the error's code.
 * -ENOSPC becomes -ENOMEM: from epoll it means that the kernel has no more watches for this user, not that a device is
 * full. */
int watching_failed(int code, const char *what, struct error *error);

#endif
