/* What the files of the library share: the client, and errors of this thread. */
#ifndef GPUWM_LIB_CLIENT_H
#define GPUWM_LIB_CLIENT_H

#include "connection.h"
#include "fork.h"

struct gpuwm_client {
	struct connection *connection;
	unsigned uses; /* atomic: the caller's, and one for each mapping, handles and publish */
	char *socket; /* the path that was connected to; NULL when adopted */
	char *name;
	char instance[VERSION_ID_TEXT];
	struct gpuwm_device *devices;
	size_t device_count;
};

/* One more use; returns the client. client_drop gives one back and frees with
 * the last: always NULL. */
struct gpuwm_client *client_keep(struct gpuwm_client *client);
struct gpuwm_client *client_drop(struct gpuwm_client *client);

/* 0, or -EINVAL (NULL) and -ECHILD. */
int client_check(const struct gpuwm_client *client, struct error *error);

/* The `known` bytes of an options struct from one of an older or newer header, by
 * the rules of gpuwm/client.h. given may be NULL: all zero. -EINVAL. */
int client_take_options(const void *given, void *ret_options, size_t known, struct error *error);

/* A call that gpuwmd may answer `wait_ms` later (-1: at any time), with slack
 * for the transport. Clears the request. ret_reply may be NULL. */
int client_call(struct gpuwm_client *client, struct message_writer *request, int64_t wait_ms,
		struct reply *ret_reply, struct error *error);

/* Begins a request for a client's connection. */
void client_request(struct gpuwm_client *client, struct message_writer *request, const char *method);

/* The path of the socket by the rules of client.h; malloced. NULL: out of memory. */
char *client_socket_path(const char *given, unsigned flags);

/* Connects and says hello on a new connection: what gpuwm_connect and events
 * share. The caller reads the result of hello from *ret_reply (may be NULL). */
int client_dial(const char *path, const char *name, int64_t wait_ms, struct connection **ret_connection,
		struct reply *ret_reply, struct error *error);

#endif
