/* What the files of the library share: the client, and errors of this thread. */
#ifndef GPUWM_LIB_CLIENT_H
#define GPUWM_LIB_CLIENT_H

#include "connection.h"
#include "fork.h"
#include "revive.h"

/* What gpuwmd says of itself. Never changed once it can be seen, so that its texts can be lent. */
struct greeting {
	char instance[VERSION_ID_TEXT], ledger[VERSION_ID_TEXT];
	uint64_t epoch;
	struct greeting *older;
};

struct gpuwm_client {
	unsigned uses; /* atomic: the caller's, and one for each mapping, handles and publish */
	struct fork_hook hook;
	char *socket; /* the path that was connected to; NULL when adopted */
	char *name;
	bool once; /* the connection that it has is its only one */
	int64_t restart_ms;
	gpuwm_lost_fn *lost;
	void *lost_data;
	struct greeting *greeting; /* atomic: of the gpuwmd that was connected to last */
	struct gpuwm_device *devices;
	size_t device_count;
	struct reviver reviver;
};

/* One more use; returns the client. client_drop gives one back and frees with
 * the last: always NULL. */
struct gpuwm_client *client_keep(struct gpuwm_client *client);
struct gpuwm_client *client_drop(struct gpuwm_client *client);
/* What client_drop frees with. */
void client_free(struct gpuwm_client *client);

/* 0, or -EINVAL (NULL) and -ECHILD. */
int client_check(const struct gpuwm_client *client, struct error *error);

/* Keeps what a hello's result says of gpuwmd. -EPROTO, -ENOMEM. */
int client_greet(struct gpuwm_client *client, const msgpack_object *hello, struct error *error);

/* The `known` bytes of an options struct from one of an older or newer header, by
 * the rules of gpuwm/client.h. given may be NULL: all zero. -EINVAL. */
int client_take_options(const void *given, void *ret_options, size_t known, struct error *error);

/* The path of the socket by the rules of client.h; malloced. NULL: out of memory. */
char *client_socket_path(const char *given, unsigned flags);

/* A connection to a path that has not said hello yet, and hello on it; the caller
 * reads the result from *ret_reply (may be NULL). */
int dial_socket(const char *path, struct connection **ret_connection, struct error *error);
int dial_hello(struct connection *connection, const char *name, int64_t wait_ms, struct reply *ret_reply,
	       struct error *error);
/* Both, while nobody listens for up to wait_ms, and for up to restart_ms after a
 * gpuwmd that took the connection and went away. */
int client_dial(const char *path, const char *name, int64_t wait_ms, int64_t restart_ms,
		struct connection **ret_connection, struct reply *ret_reply, struct error *error);

#endif
