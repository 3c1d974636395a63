/* The server's side of a take, from its answer to the taker's `done`. gpuwm-peer sends a version that it has attached, and a loader what
 * it has loaded so far. */
#ifndef GPUWM_PEER_SENDER_H
#define GPUWM_PEER_SENDER_H

#include "link.h"
#include "wire.h"

#include "../memory/memory.h"

/* Each `want` is one message on the wire. Their tags are wire_tag(nonce, number), and the number counts the wants of the take, from 0.
 * Pieces of one want lie side by side in one segment. */
#define SENDER_WANT_PIECES_MAX 16 /* 64 MiB: for NVLink. A network has enough of one piece */

/* How often it asks again for bytes that are not there yet. */
#define SENDER_LOOK_MS 5

/* How long the last word of a taker may take that has closed its wire. */
#define SENDER_LAST_WORD_MS 1000

/* How long the taker may want nothing and take nothing of what was sent. */
#define SENDER_SILENCE_MS 60000

/* How long the taker may take to end the connection, when it was told that nothing more comes. */
#define SENDER_END_MS 1000

/* The part that is sent. */
struct sender_part {
	const struct memory_device *device; /* where it lies. The caller is inside memory_enter */
	const uint64_t *segment_bytes;
	uint32_t segment_count;
	/* Returns 0 and sets *ret to where the pieces are, which stay there until the take has ended. Returns 1 if they are not there yet.
	 * Fails if they won't come: the taker is told why. The sender has checked that the segment has such pieces. */
	int (*look)(void *user_data, uint32_t segment, uint64_t first, uint64_t count, const void **ret,
		    struct error *error);
	/* Called when so many bytes have been sent. NULL: nobody counts them. */
	void (*sent)(void *user_data, uint64_t bytes);
	void *user_data;
};

/* Of the taker: what its `take` says. */
struct sender_taker {
	uint64_t nonce;
	const char *worker; /* its address, as text */
};

/* What a take came to. */
struct sender_report {
	uint64_t bytes; /* that were sent */
	bool done; /* the taker said `done`, without an error */
};

/* Serves the take that was answered on this link, until the taker says `done` or is gone, or look fails. The wire is open, and not
 * connected. The caller closes it afterwards, still inside memory_enter. Returns 0 and sets *ret. Fails
 *
 *   -EPROTO  The taker wants what there is not, or says something else.
 *   -ETIMEDOUT  The taker takes nothing any more.
 *   and as look, link_read, wire_connect and wire_send. */
int sender_run(struct link *link, struct wire *wire, const struct sender_part *part,
	       const struct sender_taker *taker, struct sender_report *ret, struct error *error);

#endif
