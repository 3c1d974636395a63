/* Connections that a port has: where they come from, and how many there may be. gpuwm-loader's port has the same rules as gpuwm-peer's. */
#ifndef GPUWM_PEER_PLACES_H
#define GPUWM_PEER_PLACES_H

#include "link.h"

#include <pthread.h>

/* ---- origins (origin.c) ----
 *
 * Where a connection comes from, before its other side has proved who it is. */

/* A user of this machine, if the kernel tells the uid, or an address. Of IPv6 it is the network, because whoever has an address has 2^64 of
 * them. */
struct origin {
	bool has_uid;
	uid_t uid;
	sa_family_t family;
	uint8_t address[16];
};

struct origin origin_of(int fd);
bool origin_same(const struct origin *a, const struct origin *b);

/* ---- places (places.c) ----
 *
 * The connections of gpuwm-peer, or of a loader that serves what it takes, and how many there may be. A connection begins as an unknown one, for which there always is a place: a
 * silent one gives way. When its other side has proved who it is, it becomes a known one, if there is room: otherwise that node is told
 * so, and asks again later. */

/* Known connections in all. A node with 8 GPUs has 8 parts and takes each on a connection of its own, and a chain sends most nodes elsewhere. Each
 * connection is a thread: some 100 KiB, and with UCX some MiB. */
#define PLACES_MAX 256
/* Known connections of one origin, and of one certificate's name. A node takes each part over a connection of its own, at most 64 at a
 * time, with as many lanes (PEER_LANES_OF_LOAD in loader/peer/peer_take.h), and asks questions over others. */
#define PLACES_PER_NODE_MAX 144
/* Unknown connections. When one more comes, the oldest one of the origin that has most of them gives way. A node needs a few milliseconds
 * for its proof, so only a client that stays silent loses its place, or one beside which others flood the port from its own address. */
#define PLACES_UNKNOWN_MAX 64
/* The same for one origin, behind which there may be many nodes (NAT). */
#define PLACES_UNKNOWN_PER_ORIGIN_MAX 16
/* Connections that gave way, and whose threads have not ended yet. */
#define PLACES_LEAVING_MAX 64
/* How long a new connection waits for one of these threads when there are so many. They end at once, as far as the machine lets them. */
#define PLACES_LEAVING_MS 1000

struct place {
	struct place *next;
	int fd;
	struct origin origin;
	struct link *link; /* NULL: it is unknown */
	bool leaving; /* it gave way */
};

struct places {
	pthread_mutex_t lock;
	pthread_cond_t left; /* a place was given back */
	struct place *first, *last; /* the oldest one first */
	unsigned count;
	uint64_t refused;
};

void places_begin(struct places *places);
void places_end(struct places *places);

/* Gives a new connection a place, as an unknown one. Returns NULL if there is no memory, or if PLACES_LEAVING_MAX are still leaving after
 * PLACES_LEAVING_MS; then the caller closes fd. */
struct place *places_take(struct places *places, int fd, const struct origin *origin);
/* Notes that the connection's other side has proved who it is. Returns 0. Fails with -EBUSY if there are as many known connections as
 * may be; *error is what the other side is to be told. The connection stays unknown then. */
int places_know(struct places *places, struct place *place, struct link *link, struct error *error);
/* Notes that the link is about to be closed. */
void places_forget(struct places *places, struct place *place);
/* Gives the place up. The caller closes the descriptor afterwards. */
void places_give(struct places *places, struct place *place);

/* Ends all connections, and waits until all places are given up. */
void places_clear(struct places *places);
/* Waits until all places are given up, or wait_ms are over. */
void places_drain(struct places *places, uint64_t wait_ms);

unsigned places_count(struct places *places);
/* Returns how many connections are known ones. */
unsigned places_known(struct places *places);
/* Returns how many connections were refused or closed for others since the last call. */
uint64_t places_refused(struct places *places);

#endif
