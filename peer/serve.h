/* The serving side of a connection. It answers the hello, lists versions, sends indices, sums and pieces, or redirects the taker to
 * another taker. The versions come from a source, of which there are two kinds: gpuwm-peer serves gpuwmd's versions, and a loader
 * that takes a version serves the pieces that have arrived. */
#ifndef GPUWM_PEER_SERVE_H
#define GPUWM_PEER_SERVE_H

#include "exchange.h"
#include "sender.h"
#include "sums.h"
#include "link.h"
#include "messages.h"

#include <stdatomic.h>

struct served_segment {
	const void *data; /* mapped; on a GPU a device pointer */
	uint64_t bytes;
};

struct served_part {
	uint32_t rank;
	struct memory_device device; /* open */
	const void *index;
	uint64_t index_bytes;
	const struct served_segment *segments;
	uint32_t segment_count;
};

/* Pieces that lie side by side in a segment. */
struct served_pieces {
	uint32_t rank, segment;
	uint64_t first, count;
};

/* A version, of which `parts` has one part for each rank. It stays as it is from find to leave. */
struct served_version {
	struct version_id id;
	const char *model, *tag;
	uint32_t world;
	const struct served_part *parts;
};

/* The functions of a source. Threads: any number at the same time. */
struct serve_source {
	/* Writes `total` and the array `versions` of one page, from position `from` on, into the open map. NULL: it tells no list. */
	int (*list)(void *user, uint64_t from, struct message_writer *w, struct error *error);
	/* Finds a version by a reference or an id, and holds it until `leave`. Fails with -ENOENT, and with gpuwmd's errors. */
	int (*find)(void *user, const char *ref, struct served_version **ret, struct error *error);
	void (*leave)(void *user, struct served_version *version);
	/* Waits less than LINK_SILENCE_MS until the sum of pieces->first is known; ignores pieces->count. Returns how many sums are
	 * known from there on without a gap, and sets *ret_sums to them. They are valid until `leave`. Fails with -ETIMEDOUT, and
	 * with the reason if the sums can't be computed. */
	int64_t (*sums)(void *user, struct served_version *version, const struct served_pieces *pieces,
			const struct sum **ret_sums, struct error *error);
	/* Writes the version's fingerprint as text. Returns false if it is not known yet. NULL: the source has no fingerprints. */
	bool (*fingerprint)(void *user, struct served_version *version, char ret[SUM_TEXT]);
	/* Finds the bytes of the pieces, as sender_part.look does. */
	int (*look)(void *user, struct served_version *version, const struct served_pieces *pieces,
		    const void **ret, struct error *error);
};

/* The result of a connection, for a line in the log. */
struct serve_report {
	struct sender_report sent;
	char version[NAME_BYTES_MAX * 2 + 2]; /* model@tag of the take; "": nothing was taken */
	char program[65]; /* the peer's; "": it said no hello */
};

struct takers;

struct server {
	const struct serve_source *source;
	void *user;
	struct takers *takers; /* NULL: the server never redirects */
	const char *program; /* "gpuwm-peer 0.1.0" */
	const struct version_id *_Atomic ledger; /* NULL: not known yet */
	atomic_bool clear; /* takers that want it get their bytes without TLS */
};

/* Answers the peer's hello with the error `why`, and serves nothing. The caller closes the link. */
void serve_refuse(struct link *link, const struct error *why);

/* Serves one connection until its end. Sets *ret_report in any case. Returns 0 if the peer ended the connection. Else fails with the
 * reason why the connection ended. The caller closes the link. */
int serve_link(const struct server *server, struct link *link, struct serve_report *ret_report,
	       struct error *error);

/* ---- takers (takers.c) ----
 *
 * The nodes that take a part from this node now, and the ports at which they serve the pieces that they have. A server redirects a
 * newcomer to one of them. So the first node sends each byte only a few times, however many nodes want it. */

/* One: the first taker gets the whole line, and passes each piece on when it has checked the piece. So n takers need little more time
 * than one. Two takers at a time would halve the rate of each. */
#define TAKERS_DEFAULT 1

struct takers;
struct taker;

/* Makes a list of takers. `most` of them take one part; further ones are redirected. Returns NULL if there is no memory. */
struct takers *takers_new(unsigned most);
/* Frees the list, which must be empty. NULL is fine. Returns NULL. */
struct takers *takers_free(struct takers *takers);
/* Changes `most` for takers that come later. */
void takers_limit(struct takers *takers, unsigned most);

/* A taker with `pace` leaves a slow one if what it would get elsewhere is at least so many times as much. A line that two share gives each
 * half, so that less would make takers change places for ever. */
#define TAKERS_FASTER 2
/* Over which time the rate of all takers together is measured. */
#define TAKERS_WINDOW_MS 1000

/* Notes a taker of this part, until takers_leave. Returns 0 and sets *ret_taker. Or returns 1 and sets *ret_redirect, whose texts are valid until
 * takers_redirect_clear, if `most` take the part already, and one of them serves it; takers that serve get newcomers in turn. With params->stay it
 * never returns 1. With params->pace, which a taker has that was redirected and finds it slow: returns 1 if a taker here is TAKERS_FASTER times as
 * fast; 0 if this node sends less than it once did, or if it is not known how much it can send (once for each taker that it sends to). Else fails
 * with -EALREADY. Fails with -ENOMEM.
 *
 * Threads: any. */
int takers_enter(struct takers *takers, const struct peer_take_params *params, const struct link *link,
		 struct taker **ret_taker, struct peer_redirect *ret_redirect);
void takers_leave(struct takers *takers, struct taker *taker);
/* Notes that so many bytes were sent to the taker. */
void takers_count_bytes(struct takers *takers, struct taker *taker, uint64_t bytes);
void takers_redirect_clear(struct peer_redirect *redirect);

/* Returns how many takers there are now. */
unsigned takers_count(struct takers *takers);

#endif
