/* The client: its reviver, what gpuwmd said about itself in its hello, and its claims. */
#ifndef GPUWM_LIB_CLIENT_H
#define GPUWM_LIB_CLIENT_H

#include "../../../proto/socket_place.h"
#include "../connection/connection.h"

#include <pthread.h>

/* ---- the connection to the gpuwmd that runs now, or why there is none ----
 * And what the client takes again on the next one. call.h has what connects. */

/* How many ids of revoked leases a client remembers that it has not entered yet. Each belongs to a reply that a thread has
 * received and not yet read. */
#define REVOKED_EARLY_MAX 64

/* What gpuwmd calls a lease: a number, which counts on the connection of that round only. */
struct granted {
	uint64_t id, round;
};

struct reviver {
	pthread_mutex_t lock; /* guards all that follows but `once`; no call to gpuwmd is made under it */
	pthread_cond_t changed;
	bool once; /* never changes: the first connection is the only one */
	struct connection *connection; /* NULL: gpuwmd is away */
	uint64_t round; /* counts connections: an id that gpuwmd gave means something on that connection only */
	struct lease *leases;
	struct claim *claims;
	struct granted revoked_early[REVOKED_EARLY_MAX]; /* the last ids; 0: none */
	unsigned revoked_early_count;
	struct error away; /* why there is no connection */
	bool over; /* there will be none any more; `away` says why */
	bool attempting; /* a thread tries to connect; no lease is freed meanwhile */
	struct connection *attempt; /* that thread's; NULL: none yet */
	uint64_t since_ms; /* when the connection was made */
	int64_t next_ms, pause_ms; /* the time of the next attempt, and the pause after it */
	pthread_t watcher;
	int wake; /* an eventfd that wakes the watcher from poll; -1: there is no watcher */
	bool watched; /* the watcher was begun */
	bool telling; /* the watcher is in the program's function for lost leases */
	bool stopping; /* the watcher is to end */
	bool orphaned; /* the watcher frees the client at its end */
};

/* The caller sets the first connection afterwards, before another thread can see the reviver. */
void reviver_init(struct reviver *v);
/* Ends the watcher of a client that nobody uses any more. Returns false if the calling thread is the watcher, which then
 * frees the client when it is back from the program's function for lost leases. */
bool reviver_stop(struct reviver *v);
/* Closes the connection. in_child: this process is a child of the one that made the reviver. */
void reviver_clear(struct reviver *v, bool in_child);
/* For a fork_hook: closes in a child what only the parent's watcher needs. */
void reviver_in_child(struct reviver *v);

/* Wakes the watcher from poll: a lease was revoked, and the watcher calls the program's function. Call it with the lock
 * held. */
void reviver_wake(struct reviver *v);

/* Call when a connection has ended: the client then connects again. Does nothing if that is known already, or if there is
 * only one connection. */
void reviver_ended(struct reviver *v, const struct connection *connection, const struct error *why);
/* The same for the connection that the reviver has. Call it with the lock held. */
void reviver_lose(struct reviver *v, const struct error *why);
/* An attempt to connect has failed: the next one is made after a pause. Call it with the lock held. */
void reviver_pause(struct reviver *v);

/* ---- the client ---- */

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

/* ---- claims ----
 * The names that a client claims, until it begins a publish of them. After a restart of gpuwmd the client takes them again. */

/* A claim in the reviver's list, under the reviver's lock. */
struct claim {
	char name[2 * NAME_BYTES_MAX + 2];
	uint64_t round; /* of the connection on which gpuwmd has the claim */
	struct claim *next;
};

/* Enters a (malloced) claim that gpuwmd granted on the connection of this round. Returns false if that connection has ended,
 * and the claim with it: then the caller still owns it. */
bool claims_hold(struct reviver *v, struct claim *claim, uint64_t round);

/* Take the claim of this name, or any claim, out of the list. The caller frees it. NULL: there is none. */
struct claim *claims_take(struct reviver *v, const char *name);
struct claim *claims_take_first(struct reviver *v);

/* Takes all claims again on a new connection, which has this round. Forgets claims of names that another client builds by now.
 * Returns 0 also if gpuwmd refuses a claim, or is too old. After any other error the caller closes the connection and tries
 * again. */
int claims_resume(struct reviver *v, struct connection *connection, uint64_t round, struct error *error);

/* Frees the claims that are left. */
void claims_free(struct reviver *v);

#endif
