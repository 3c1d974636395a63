/* The client: its reviver, and what gpuwmd said of itself. */
#ifndef GPUWM_LIB_CLIENT_H
#define GPUWM_LIB_CLIENT_H

#include "reviver.h"

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
	int64_t restart_ms;
	gpuwm_lost_fn *lost;
	void *lost_data;
	struct greeting *greeting; /* atomic: of the gpuwmd that was connected to last */
	struct gpuwm_device *devices;
	size_t device_count;
	struct reviver reviver;
};

/* A client that is not connected yet, with one use. NULL: out of memory. */
struct gpuwm_client *client_new(void);

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

#endif
