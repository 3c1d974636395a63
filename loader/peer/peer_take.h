/* Taking the missing pieces of a part over one connection to one peer. */
#ifndef GPUWM_LOADER_PEER_TAKE_H
#define GPUWM_LOADER_PEER_TAKE_H

#include "peer_part.h"
#include "peer_dial.h"
#include "peer_way.h"

#include "../../peer/link.h"
#include "../../peer/messages.h"
#include "../../peer/wire.h"

#include <stdatomic.h>

/* How long nothing may arrive. A peer that takes its pieces from a third one may wait as long itself. */
#define PEER_STALL_MS 30000
/* How many pieces of one connection may be wrong before the connection is given up. One wrong piece may be a fault of a cable. More of
 * them mean that the peer has other bytes. */
#define PEER_WRONG_MAX 3
/* How many messages the taker wants at a time. With one piece each they have 64 MiB, which a line of 100 Gbit/s brings in 5 ms. */
#define PEER_WANTS 16

/* The node to which a peer redirects the taker. */
struct peer_elsewhere {
	bool there; /* the peer redirects to another one */
	char host[64];
	unsigned port;
	char name[256];
};

/* What a connection is for. Any thread may set *stop, which ends the call with -ECANCELED. */
struct peer_taking {
	struct taken_part *part;
	const struct version_id *version; /* as this peer calls it */
	uint64_t serves; /* the port on which this loader serves what it has; 0: it does not */
	bool stay; /* the peer is not to redirect */
	unsigned threads; /* that compare */
	int64_t stall_ms; /* PEER_STALL_MS, or less in tests */
	uint64_t pace; /* as peer_take_params.pace; 0: none */
	/* After watch_ms, and each time again, a take that is slow ends with -ETIME: what is missing would take longer than slow_ms, and
	 * the bytes a second are fewer than leave_below, 0: it never ends so. ret_rate is set to them then. */
	int64_t watch_ms, slow_ms;
	uint64_t leave_below;
	uint64_t *ret_rate;
	const atomic_bool *stop;
	/* The first take opens the wire. Only a take that was redirected leaves it open, for the next take: opening UCX takes some
	 * 30 ms. */
	struct wire **wire;
	const struct wire_ops *ops; /* the transport, which both have */
	/* As those of a wire_meeting. */
	struct peer_keys *keys;
	const struct link_target *target;
	unsigned lanes;
	bool clear;
};

/* Takes the missing pieces from a peer, after the hello. Returns 0 if all pieces are here, or if the peer redirects
 * (ret_elsewhere->there). If it fails, some pieces may be here, and none is on its way any more.
 *
 * Fails with
 *   -ETIMEDOUT   Nothing came for PEER_STALL_MS.
 *   -ETIME       The peer is slow (taking->leave_below).
 *   -EBADMSG     Too many pieces were wrong.
 *   -ENOTSUP     The transport can't be used here.
 *   -ENOTRECOVERABLE  The transport hangs. It may write into the part's memory as long as this process lives.
 *   -ECANCELED, -ENOMEM, -EIO, and as peer_call and the wire
 * The message names the peer. */
int peer_take(struct link *link, const struct peer_taking *taking, struct peer_elsewhere *ret_elsewhere,
	      struct error *error);

/* ---- from one peer after another (peer_fetch.c) ----
 *
 * Fetching one part, from one peer after another until all of its pieces have arrived. */

/* How long connections may bring nothing, one after another. In that time a switch or a node restarts. After a connection that brought
 * pieces the time begins again. */
#define PEER_PATIENCE_MS 90000
/* How long a node is left alone after it gave nothing. Each further time is twice as long, up to so many times the first: 10 s. A node
 * that does not have the version is left alone for the longest time at once. */
#define PEER_PAUSE_MS 250
#define PEER_PAUSES_MAX 40
/* How long a node may take to prove who it is that has not been asked before, while another one is known to have the version. A
 * connection takes four round trips. */
#define PEER_PROBE_MS 1000
/* A take that would go on for longer than that at its pace may be left for a faster node. A new connection costs some 100 ms, and the
 * pieces on their way come again. */
#define PEER_SLOW_MS 5000
/* How long a take is watched before its pace is known. It doubles each time that a take was left, so that looking for a faster node
 * costs little in all. */
#define PEER_WATCH_MS 2000
/* How often a taker is redirected: the length of a chain. Each redirect takes some milliseconds. The last node asked has to send. */
#define PEER_REDIRECTS_MAX 64

/* Connections by TLS of one load, which its parts share; each part has one at least. With those of the parts themselves a load of up to 64 ranks
 * has at most 128, which is what a node may have (PLACES_PER_NODE_MAX in peer/places.h). */
#define PEER_LANES_OF_LOAD 16

struct peer_fetch {
	struct taken_part *part;
	const struct peer_offer *offer;
	struct peer_keys *keys;
	const struct peer_places *places; /* with what the load has learned of them */
	uint64_t serves; /* as peer_taking.serves */
	unsigned threads;
	unsigned lanes; /* connections by TLS for the bytes */
	bool clear; /* they need not be encrypted */
	/* PEER_PAUSE_MS, PEER_PATIENCE_MS, PEER_WATCH_MS and PEER_SLOW_MS, or less in tests */
	int64_t pause_ms, patience_ms, watch_ms, slow_ms;
	atomic_bool *stop;
	struct wire *wire; /* for the next take; NULL: none is open */
	struct peer_way way;
	/* set at the end */
	atomic_bool ended;
	struct error error; /* code 0: all pieces are here */
	/* connections that failed, for a note */
	unsigned failures;
	struct error last;
	unsigned left; /* takes that were slow */
};

/* Fetches the part, or copies it from part->origin piece by piece, as they come there. It is a thread's function, and sets `ended` last.
 * user_data is a struct peer_fetch. */
void *peer_fetch_run(void *user_data);

#endif
