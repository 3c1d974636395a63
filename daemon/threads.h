/* The threads of gpuwmd: libuv's pool, on which descriptors are closed and the service manager is asked. libuv makes
 * the pool at its first use, and aborts the process where it can't. So gpuwmd finds out at its start. */
#ifndef GPUWM_DAEMON_THREADS_H
#define GPUWM_DAEMON_THREADS_H

#include "../proto/errors.h"

#include <uv.h>

/* Makes the pool. -EAGAIN or -ENOMEM, with the limits that are set: a thread can't be made. `work` stays in use until
 * the loop has turned. */
int threads_begin(uv_loop_t *loop, uv_work_t *work, struct error *error);

#endif
