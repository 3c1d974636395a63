/* Fetching one part, from one peer after another until all of its pieces have arrived. */
#ifndef GPUWM_LOADER_PEER_FETCH_H
#define GPUWM_LOADER_PEER_FETCH_H

#include "peer_place.h"
#include "peer_take.h"

/* How many connections in a row may bring nothing. With the pauses between them that takes 90 seconds, in which a switch or a node
 * restarts. After a connection that brought pieces the count begins again. */
#define PEER_TRIES_MAX 12
/* The first pause. Each further one is twice as long, up to so many times the first: 10 s. */
#define PEER_PAUSE_MS 250
#define PEER_PAUSES_MAX 40
/* How often a taker is redirected: the length of a chain. Each redirect takes some milliseconds. The last node asked has to send. */
#define PEER_REDIRECTS_MAX 64

struct peer_fetch {
	struct taken_part *part;
	const struct peer_offer *offer;
	struct peer_keys *keys;
	const struct peer_places *places; /* that have the version */
	uint64_t serves; /* as peer_taking.serves */
	unsigned threads;
	int64_t pause_ms; /* PEER_PAUSE_MS, or less in tests */
	atomic_bool *stop;
	struct wire *wire; /* for the next take; NULL: none is open */
	/* set at the end */
	atomic_bool ended;
	struct error error; /* code 0: all pieces are here */
	/* connections that failed, for a note */
	unsigned failures;
	struct error last;
};

/* Fetches the part, or copies it from part->origin piece by piece, as they come there. It is a thread's function, and sets `ended` last.
 * user_data is a struct peer_fetch. */
void *peer_fetch_run(void *user_data);

#endif
