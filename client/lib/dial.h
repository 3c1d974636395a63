/* How a client reaches gpuwmd: the path of the socket, the connection to it, and hello. */
#ifndef GPUWM_LIB_DIAL_H
#define GPUWM_LIB_DIAL_H

#include "connection.h"

/* The path of the socket by the rules of client.h; malloced. NULL: out of memory. */
char *dial_path(const char *given, unsigned flags);

/* A connection to a path that has not said hello yet, and hello on it; the caller
 * reads the result from *ret_reply (may be NULL). */
int dial_socket(const char *path, struct connection **ret_connection, struct error *error);
int dial_hello(struct connection *connection, const char *name, int64_t wait_ms, struct reply *ret_reply,
	       struct error *error);

/* Whom to reach, and as whom. */
struct dial_target {
	const char *path, *name;
	int64_t restart_ms; /* how long a gpuwmd may take that took the connection and went away */
};
/* Both, while nobody listens for up to wait_ms, and for up to to->restart_ms after a
 * gpuwmd that took the connection and went away. */
int dial(const struct dial_target *to, int64_t wait_ms, struct connection **ret_connection,
	 struct reply *ret_reply, struct error *error);

#endif
