/* The threads of gpuwmd: libuv's pool, on which gpuwmd closes descriptors and talks to the service manager. libuv makes
 * the pool at its first use, and aborts the process if it can't. So gpuwmd tries it at its start. */
#ifndef GPUWM_DAEMON_THREADS_H
#define GPUWM_DAEMON_THREADS_H

#include "../../base/errors.h"

#include <uv.h>

/* Makes the pool. `work` must stay valid until the loop has turned. -EAGAIN or -ENOMEM: a thread can't be made; the error
 * names the limits that are set. */
int threads_begin(uv_loop_t *loop, uv_work_t *work, struct error *error);

#endif
