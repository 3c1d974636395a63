/* A publisher's socket until its checker has it: gpuwmd watches for the packet that hands the memory in, and reads
 * nothing of it. A checker that has nothing to check yet would keep a loader from others, so a part gets one when there
 * is something to check. */
#ifndef GPUWM_DAEMON_HAND_IN_H
#define GPUWM_DAEMON_HAND_IN_H

#include "../../proto/errors.h"

#include <stdint.h>

struct work;
struct job;
struct hand_in;

/* Watches the check's publisher_sock. Once the publisher has handed in, the job is ready for a loader. If it
 * closes the socket without, left_ms of the job says when, and silence.h ends its publish a moment later: a process that
 * dies closes its connection to gpuwmd too, which tells more. -ENOMEM, -errno. */
int hand_in_await(struct work *work, struct job *job, struct error *error);
/* Watches no longer: before the socket is closed or handed on. NULL is fine; always NULL. */
struct hand_in *hand_in_forget(struct hand_in *hand_in);

#endif
