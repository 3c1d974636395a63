/* How a client reaches gpuwmd: the connection, and hello. */
#ifndef GPUWM_LIB_DIAL_H
#define GPUWM_LIB_DIAL_H

#include "connection.h"
#include "../../../proto/socket_place.h"
#include "../../../base/limits.h"

/* dial_socket connects to a place. It fails with -EPERM if the place is the user's and a process of another user listens there, other
 * than root. dial_hello says hello on the connection, and sets *ret_reply (may be NULL) to the answer. */
int dial_socket(const struct socket_place *place, struct connection **ret_connection, struct error *error);
int dial_hello(struct connection *connection, const char *name, int64_t wait_ms, struct reply *ret_reply,
	       struct error *error);

/* The places to try, in this order, and the name to say hello with. */
struct dial_target {
	const struct socket_place *places;
	size_t count;
	const char *name;
	int64_t wait_ms; /* how long to try again while nobody listens */
	/* How long all of it may take. 0: wait_ms; if both are 0, each hello may take CALL_TIMEOUT_MS. */
	int64_t timeout_ms;
	int64_t restart_ms; /* how long gpuwmd may be away after it took the connection */
};
/* Connects to the first place where somebody listens, says hello, and sets *ret_place to the place's position. Tries again for up to
 * to->wait_ms while nobody listens at any of them, and for up to to->restart_ms after a gpuwmd took the connection and went away.
 * Fails with -ETIMEDOUT if gpuwmd takes the connection and does not answer; the message names the process that listens. */
int dial(const struct dial_target *to, size_t *ret_place, struct connection **ret_connection,
	 struct reply *ret_reply, struct error *error);

/* Returns the timeout_ms of a client that connects once more: gpuwmd may be away for restart_ms (-1: for ever), and then has
 * CALL_TIMEOUT_MS to answer. */
int64_t dial_again_ms(int64_t restart_ms);

/* ---- what a user can do when a socket refuses the connection (EACCES) ---- */

/* Sets ret_remedy to a sentence that says how this user gets access to the socket at `path`: by joining a group, or by a
 * setting that opens the socket or its folder. Call it after connect failed with EACCES. It looks at the file and at the
 * machine's user database. */
void admission_remedy(const char *path, char ret_remedy[TEXT_BYTES_MAX + 1]);

#endif
