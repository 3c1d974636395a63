/* A client's connection to the gpuwmd that runs now, or why there is none; and what the client takes again on the next
 * one. reconnect.h has what connects. */
#ifndef GPUWM_LIB_REVIVER_H
#define GPUWM_LIB_REVIVER_H

#include "../connection/connection.h"

#include <pthread.h>

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
	int64_t since_ms; /* when the connection was made */
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

#endif
