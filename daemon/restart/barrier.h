/* A barrier of sd_notify(3): once it has ended, the service manager has processed every earlier notification.
 * libsystemd's sd_notify_barrier does not read the answer of gpuwm-keeper (service/store_answer.h). */
#ifndef GPUWM_DAEMON_BARRIER_H
#define GPUWM_DAEMON_BARRIER_H

#include "../../service/store_answer.h"

#include <stdint.h>

/* Sends the barrier and waits for its end, at most wait_ms. Sets ret_answer, which has room for STORE_ANSWER_BYTES + 1
 * bytes, to the answer; "" if the service manager gives none. -ETIMEDOUT; -ENOTCONN: there is no $NOTIFY_SOCKET; -ENODATA:
 * the service manager answers every barrier, but lost this one; any other -errno: a system call failed. The calling thread
 * must have signals blocked. */
int barrier_wait(uint64_t wait_ms, char *ret_answer);

#endif
