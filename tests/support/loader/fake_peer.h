/* A peer that has one version of two segments, and may lie about it. At 127.0.0.1 it has the version; at FAKE_FAST too, and tells the truth there. At every other
 * address of this machine the same port is a node that has nothing. */
#ifndef GPUWM_TESTS_LOADER_FAKE_PEER_H
#define GPUWM_TESTS_LOADER_FAKE_PEER_H

#include "loader/peer/peer_dial.h"
#include "peer/serve.h"

#include <stdatomic.h>

#define FAKE_SLOW_MS 1000

/* Three pieces, of which the last one has 1 MiB; and one of a page. */
#define FAKE_BYTES (9 << 20)
#define FAKE_TAIL 4096

#define FAKE_FAST "127.0.1.1"
#define FAKE_NEXT "127.0.1.2"

/* More than a machine has. */
#define FAKE_VAST (UINT64_C(64) << 40)

/* Of LIE_NAME: its '@' moves the end of the model. */
#define FAKE_NAME "@m"

enum fake_lie {
	LIE_NOTHING,
	LIE_BYTES, /* every piece has a wrong byte */
	LIE_BYTES_ONCE, /* the first look at each piece brings a wrong byte */
	LIE_SUMS, /* the first piece's sum is another one */
	LIE_SUMS_COUNT, /* there are sums of fewer pieces */
	LIE_INDEX, /* a byte of the index is wrong */
	LIE_RANK, /* the index is of another rank */
	LIE_SMALLER, /* the segments are said to have fewer bytes than in the index */
	LIE_HUGE, /* a segment of the index is larger than all memory */
	LIE_VAST, /* the version is said to have FAKE_VAST bytes */
	LIE_WORLD, /* the version is said to have two ranks, of which one is named */
	LIE_NAME, /* the version's model is one that no model can have */
	LIE_SILENT, /* the pieces never come */
	LIE_SLOW, /* a piece comes each FAKE_SLOW_MS */
	LIE_GONE, /* it says that the version is gone */
	LIE_NO_MEMORY, /* it says that it has no memory */
	LIE_RESET, /* the connection ends at the second piece */
	LIE_RESTART, /* it stops at the second piece, and each connection that comes next is cut before it has begun */
	LIE_FULL, /* it serves as many as it can */
	LIE_CUT, /* each connection is cut before it has begun */
	LIE_FORGETS, /* the version is not there any more */
	LIE_ELSEWHERE, /* it sends takers on to a port where nobody is */
	LIE_ELSEWHERE_AGAIN, /* it sends them on although they can't go */
	LIE_CHAIN, /* it sends them on to FAKE_NEXT, which is as LIE_SLOW, and has nothing for those who find that slow */
};

struct fake_peer {
	enum fake_lie lie;
	atomic_bool *stops; /* set when a piece is asked for; NULL: nothing is */
	atomic_uint connections; /* to 127.0.0.1 */
	atomic_uint looks;
	atomic_uint empty_connections; /* to the nodes that have nothing */
	atomic_uint details; /* requests for the index and for sums, of the lies about `find` */
	unsigned lies_until; /* with which connection the lies end; 0: never */
	unsigned port;
	struct peer_keys *keys; /* for both sides */
	char secret[64]; /* the path of their secret */
};

/* Begins to listen. */
void fake_peer_begin(struct fake_peer *peer);
void fake_peer_end(struct fake_peer *peer);
/* The bytes of its segments. */
const uint8_t *fake_peer_bytes(uint32_t segment);
/* Connects, and says hello. */
struct link *fake_peer_connect(const struct fake_peer *peer);

#endif
