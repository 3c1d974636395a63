/* Peers that connect: the listening socket, and the places that they take. */
#ifndef GPUWM_PEER_LISTENER_H
#define GPUWM_PEER_LISTENER_H

#include "link.h"
#include "serve.h"

#include <pthread.h>

/* ---- places (places.c) ----
 *
 * The connections of gpuwm-peer, and how many there may be: of nodes that have proved who they are, and of those that have not yet. */

/* Connections in all. A node with 8 GPUs has 8 parts and takes each on a connection of its own, and a chain sends most nodes elsewhere. Each connection is a
 * thread: some 100 KiB, and with UCX some MiB. */
#define PLACES_MAX 256
/* Connections from one address. A node takes each part over a connection of its own, at most 64 at a time, and asks questions over others. */
#define PLACES_PER_ADDRESS_MAX 80
/* Connections whose node has not proved who it is. When one more comes, gpuwm-peer closes the oldest of them. A node needs a few
 * milliseconds for its proof, so only a client that stays silent loses its place. */
#define PLACES_UNKNOWN_MAX 64
/* The same for one address, behind which there may be many nodes (NAT). gpuwm-peer refuses further connections from it. */
#define PLACES_UNKNOWN_PER_ADDRESS_MAX 16

struct place {
	struct place *next;
	int fd;
	uint8_t address[16];
	struct link *link; /* NULL: it has not proved who it is */
};

struct places {
	pthread_mutex_t lock;
	pthread_cond_t emptied;
	struct place *first, *last; /* the oldest one first */
	unsigned count;
	uint64_t refused;
};

void places_begin(struct places *places);
void places_end(struct places *places);

/* Gives a new connection a place. Returns the place, or NULL if there is none; then the caller closes fd. */
struct place *places_take(struct places *places, int fd);
/* Notes that the connection's other side has proved who it is. `link` is NULL when the link is about to be closed. */
void places_known(struct places *places, struct place *place, struct link *link);
/* Gives the place up. The caller closes the descriptor afterwards. */
void places_give(struct places *places, struct place *place);

/* Ends all connections, and waits until all places are given up. */
void places_clear(struct places *places);
/* Waits until all places are given up, or wait_ms are over. */
void places_drain(struct places *places, uint64_t wait_ms);

unsigned places_count(struct places *places);
/* Returns how many connections were refused or closed for others since the last call. */
uint64_t places_refused(struct places *places);

/* ---- the listener (listener.c) ----
 *
 * The port of gpuwm-peer, and a thread for each connection. */

struct listener {
	struct server server;
	int fd;
	struct places places;
	pthread_mutex_t lock; /* guards the members below, which a reload changes */
	struct peer_keys *keys;
	struct peer_settings settings; /* `names` says which nodes may take */
	uint64_t sent; /* bytes of all takes that have ended */
};

/* Fills *listener, which owns settings and keys afterwards. */
void listener_begin(struct listener *listener, const struct server *server, int fd,
		    struct peer_settings *settings, struct peer_keys *keys);
/* New connections use these settings and keys from now on. The listener owns both afterwards. */
void listener_change(struct listener *listener, struct peer_settings *settings, struct peer_keys *keys);

/* Accepts the connections that wait, and starts a thread for each. */
void listener_accept(struct listener *listener);
/* Closes the port, and waits up to STOP_MS until all connections have ended. Then ends the others. */
void listener_end(struct listener *listener);

#endif
