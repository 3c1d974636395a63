/* A barrier of sd_notify(3): the service manager has processed all that it was told before. libsystemd's own
 * (sd_notify_barrier) does not look at the answer that gpuwm-keeper gives: see service/store_answer.h. */
#ifndef GPUWM_DAEMON_BARRIER_H
#define GPUWM_DAEMON_BARRIER_H

#include "../service/store_answer.h"

#include <stdint.h>

/* Sends the barrier and waits for its end, at most wait_ms. ret_answer has room for STORE_ANSWER_BYTES + 1 and is set to
 * the answer, as text; to none if the service manager gives none. -ETIMEDOUT; -ENOTCONN: there is no $NOTIFY_SOCKET;
 * -ENODATA: the service manager answers every barrier, and has lost this one; any other -errno of the calls. For a thread
 * that signals do not interrupt. */
int barrier_wait(uint64_t wait_ms, char *ret_answer);

#endif
