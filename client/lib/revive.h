/* A client's connection to whichever gpuwmd runs now. When one goes away, the
 * next is connected to and every lease taken again before any other call goes
 * out: by a thread that watches the connection, or by the call that needs it,
 * whichever comes first. */
#ifndef GPUWM_LIB_REVIVE_H
#define GPUWM_LIB_REVIVE_H

#include "connection.h"

#include <pthread.h>

/* Ids of leases of which is known that they are revoked, and not yet that they were granted: each is a reply that some
 * thread has received and not taken. */
#define REVOKED_EARLY_MAX 64

struct reviver {
	pthread_mutex_t lock; /* of all that follows; no call is made under it */
	pthread_cond_t changed;
	struct connection *connection; /* NULL: gpuwmd is away */
	uint64_t round; /* counts connections: an id of gpuwmd's counts on the one that told it */
	struct lease *leases;
	struct claim *claims;
	uint64_t revoked_early[REVOKED_EARLY_MAX]; /* the last ones; 0: none */
	unsigned revoked_early_count;
	struct error away; /* why there is no connection */
	bool over; /* and why there will be none */
	bool attempting; /* some thread is at it: meanwhile no lease is freed */
	struct connection *attempt; /* of that thread */
	int64_t since_ms; /* when the connection was there */
	int64_t next_ms, pause_ms; /* when the next attempt is made, and the pause after it */
	pthread_t watcher;
	int wake; /* an eventfd: a lease was revoked that is to be told; -1: no thread was begun */
	bool watched; /* the thread was begun */
	bool telling; /* it is in the caller's function */
	bool stopping; /* and is to end */
	bool orphaned; /* and frees the client */
};

/* The first connection is the caller's to set, before anybody else can see the client. */
void reviver_init(struct gpuwm_client *client);
/* Of a client that nobody uses any more. False: this is the watcher itself, which
 * frees the client when it is back from the caller's function. */
bool reviver_stop(struct gpuwm_client *client);
void reviver_clear(struct gpuwm_client *client);
/* For a fork_hook: closes in a child what only the parent's thread needs. */
void reviver_in_child(struct gpuwm_client *client);

/* Begins the thread, unless it runs or there is nothing to connect to again. -EAGAIN, -EMFILE, -ENFILE. */
int reviver_watch(struct gpuwm_client *client, struct error *error);

/* Has the thread look whether a lease is to be told as revoked. Under the lock. */
void reviver_wake(const struct reviver *v);

/* The connection that is usable now, kept, and its round; waits for one until
 * `deadline`. only: not 0: that round's, without waiting: -ECONNRESET. -ECONNREFUSED:
 * no gpuwmd in time. */
int reviver_take(struct gpuwm_client *client, uint64_t only, int64_t deadline,
		 struct connection **ret_connection, uint64_t *ret_round, struct error *error);

/* Says that this connection is of no use any more; twice is fine. */
void reviver_ended(struct gpuwm_client *client, const struct connection *connection, const struct error *why);

#endif
