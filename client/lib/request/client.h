/* The client: its reviver, and what gpuwmd said about itself in its hello. */
#ifndef GPUWM_LIB_CLIENT_H
#define GPUWM_LIB_CLIENT_H

#include "reviver.h"

#include "../../../proto/socket_path.h"

/* What a gpuwmd says about itself. Once other threads can see a greeting, it never changes, so callers may keep pointers to its
 * texts. */
struct greeting {
	char instance[VERSION_ID_TEXT], ledger[VERSION_ID_TEXT];
	uint64_t epoch;
	struct greeting *older;
};

struct gpuwm_client {
	unsigned uses; /* atomic: the caller has one, and so has each mapping, set of handles, and publish */
	struct fork_hook hook;
	struct socket_place place; /* where the client connected to; path NULL: it adopted a connection */
	char *name;
	int64_t restart_ms;
	gpuwm_lost_fn *lost;
	void *lost_data;
	struct greeting *greeting; /* atomic: of the last gpuwmd that the client connected to */
	struct gpuwm_device *devices;
	size_t device_count;
	struct reviver reviver;
};

/* Makes a client with one use, which is not connected yet. Returns NULL if there is no memory. */
struct gpuwm_client *client_new(void);

/* client_keep adds a use, and returns the client. client_drop ends a use, frees the client after the last one, and returns NULL. */
struct gpuwm_client *client_keep(struct gpuwm_client *client);
struct gpuwm_client *client_drop(struct gpuwm_client *client);
/* Frees the client: for client_drop. */
void client_free(struct gpuwm_client *client);

/* Checks that the client can be used. Fails with -EINVAL (it is NULL) and -ECHILD (this process is a fork). */
int client_check(const struct gpuwm_client *client, struct error *error);

/* Reads the reply to a hello into *ret_hello, and keeps what it says about gpuwmd. Fails with -EPROTO and -ENOMEM. */
int client_greet(struct gpuwm_client *client, const struct reply *reply, struct hello_result *ret_hello,
		 struct error *error);

/* Reads an id that the program gave; `what` is the parameter that it is for. text NULL: does nothing. Fails with -EINVAL. */
int client_take_id(const char *text, const char *what, struct version_id *ret, struct error *error);

/* Copies the `known` bytes of an options struct that may come from an older or newer header, by the rules of gpuwm/client.h. given
 * NULL: all options are zero. Fails with -EINVAL. */
int client_take_options(const void *given, void *ret_options, size_t known, struct error *error);

#endif
