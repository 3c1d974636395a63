/* The socket of a publisher until its checker has it. gpuwmd watches for the packet that hands the memory in, and does not read
 * the packet. Only then does the part get a loader, because a checker that waits would keep a loader from other jobs. */
#ifndef GPUWM_DAEMON_HAND_IN_H
#define GPUWM_DAEMON_HAND_IN_H

#include "../../../base/errors.h"

#include <stdbool.h>
#include <stdint.h>

struct work;
struct job;
struct hand_in;

/* Watches the check's publisher_sock. Once the publisher has handed in, the job is ready for a loader. If it
 * closes the socket before that, left_ms of the job says when, and silence.h ends the publish a moment later: a process that
 * dies also closes its connection to gpuwmd, and that tells more. Fails with -ENOMEM and -errno. */
int hand_in_await(struct work *work, struct job *job, struct error *error);
/* Ends the watch. Call it before the socket is closed or passed on. Returns NULL; NULL is fine. */
struct hand_in *hand_in_forget(struct hand_in *hand_in);

/* Returns whether what the publisher handed in has not been read by a checker, so that another one can read it. */
bool hand_in_is_unread(const struct job *job);

#endif
