/* HAProxy: its slots become what the fleets of the routes are. */
#ifndef GPUWM_FOLLOW_BALANCER_H
#define GPUWM_FOLLOW_BALANCER_H

#include "route.h"
#include "../base/errors.h"

#include <stddef.h>

struct balancer {
	const char *socket; /* NULL: there is no HAProxy */
	const char *state_file; /* NULL: none */
	bool is_written; /* the file has what HAProxy has now */
	bool is_silent; /* HAProxy did not answer in time: it is asked no more until this is false */
	struct trouble trouble, file_trouble;
};

/* The next calls ask HAProxy again, even if it did not answer in time before. One that hangs so costs one wait, not one for each
 * route. */
void balancer_begin(struct balancer *balancer);

/* Takes the servers that the route's backend has into its fleet, once: whoever got requests before gpuwm-follow was started is not
 * removed before gpuwmd has had keep_until_ms to tell of it. If HAProxy can't be asked, a later call does it. */
void balancer_adopt(struct balancer *balancer, struct route *route, uint64_t keep_until_ms);

/* Compares the backend's slots with the fleet, and changes what differs. Logs what can't be done; a later call tries again. */
void balancer_apply(struct balancer *balancer, struct route *route);

/* Writes the state file if HAProxy has changed since the last time. */
void balancer_write(struct balancer *balancer);

/* ---- its runtime API: one command at a time, over its "stats socket" ---- */

/* HAProxy answers in less than a millisecond. One that hangs must not keep gpuwm-follow from what else it does. */
#define HAPROXY_TIMEOUT_MS 2000
/* The longest answer: 150 bytes for each server, thousands of them. */
#define HAPROXY_ANSWER_MAX (1 << 20)

/* Sends one command to the socket: the path of a Unix socket, or an address of proto/address.h. Sets *ret_answer, a malloced text without
 * the newlines at its end. Fails with -ECONNREFUSED and the like if nobody listens, -ETIMEDOUT, -EMSGSIZE and -ENOMEM. */
int haproxy_ask(const char *socket, const char *command, char **ret_answer, struct error *error);

/* Makes a change: "set server ...". As haproxy_ask; -EIO: HAProxy refused it, and the message has its words. */
int haproxy_set(const char *socket, const char *command, struct error *error);

#endif
