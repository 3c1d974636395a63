/* A client's connection to the gpuwmd that runs now. When that gpuwmd goes away, the client connects to the next one and
 * takes its leases again, before any other call goes out. Either a thread of the library does this, the watcher, or a call
 * that needs the connection. */
#ifndef GPUWM_LIB_REVIVE_H
#define GPUWM_LIB_REVIVE_H

#include "connection.h"

#include <pthread.h>

/* How many ids of revoked leases a client remembers that it has not entered yet. Each belongs to a reply that a thread has
 * received and not yet read. */
#define REVOKED_EARLY_MAX 64

/* What gpuwmd calls a lease: a number, which counts on the connection of that round only. */
struct granted {
	uint64_t id, round;
};

struct reviver {
	pthread_mutex_t lock; /* guards all that follows; no call to gpuwmd is made under it */
	pthread_cond_t changed;
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
	int64_t since_ms; /* when the connection was made */
	int64_t next_ms, pause_ms; /* the time of the next attempt, and the pause after it */
	pthread_t watcher;
	int wake; /* an eventfd that wakes the watcher from poll; -1: there is no watcher */
	bool watched; /* the watcher was begun */
	bool telling; /* the watcher is in the program's function for lost leases */
	bool stopping; /* the watcher is to end */
	bool orphaned; /* the watcher frees the client at its end */
};

/* The caller sets the first connection afterwards, before another thread can see the client. */
void reviver_init(struct gpuwm_client *client);
/* Ends the watcher of a client that nobody uses any more. Returns false if the calling thread is the watcher, which then
 * frees the client when it is back from the program's function for lost leases. */
bool reviver_stop(struct gpuwm_client *client);
void reviver_clear(struct gpuwm_client *client);
/* For a fork_hook: closes in a child what only the parent's watcher needs. */
void reviver_in_child(struct gpuwm_client *client);

/* Begins the watcher, unless it runs or the client connects only once. -EAGAIN: the thread could not be made; -EMFILE,
 * -ENFILE: there is no descriptor for what wakes it. */
int reviver_watch(struct gpuwm_client *client, struct error *error);

/* Wakes the watcher from poll: a lease was revoked, and the watcher calls the program's function. Call it with the lock
 * held. */
void reviver_wake(struct reviver *v);

/* Waits until `deadline` for a connection that can be used. Sets *ret_connection, which the caller frees, and its round.
 * If `only` is not 0, takes the connection of that round, without waiting. -ECONNRESET: that connection has ended;
 * -ECONNREFUSED: there was no gpuwmd in time; -ECANCELED: the client was closed meanwhile. */
int reviver_take(struct gpuwm_client *client, uint64_t only, int64_t deadline,
		 struct connection **ret_connection, uint64_t *ret_round, struct error *error);

/* Call when a connection has ended: the client then connects again. Does nothing if that is known already. */
void reviver_ended(struct gpuwm_client *client, const struct connection *connection, const struct error *why);

#endif
