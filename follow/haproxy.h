/* HAProxy's runtime API: one command at a time, over its "stats socket". */
#ifndef GPUWM_FOLLOW_HAPROXY_H
#define GPUWM_FOLLOW_HAPROXY_H

#include "../base/errors.h"

#include <stddef.h>

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
