/* The nodes that take a part from this node now, and the ports at which they serve the pieces that they have. A server redirects a
 * newcomer to one of them. So the first node sends each byte only a few times, however many nodes want it. */
#ifndef GPUWM_PEER_TAKERS_H
#define GPUWM_PEER_TAKERS_H

#include "link.h"
#include "messages.h"

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

/* Notes a taker of this part, until takers_leave. Returns 0 and sets *ret_taker. Or returns 1 and sets *ret_redirect, whose texts are valid until
 * takers_redirect_clear, if `most` take the part already, and one of them serves it; takers that serve get newcomers in turn. With params->stay it
 * never returns 1. Fails with -ENOMEM.
 *
 * Threads: any. */
int takers_enter(struct takers *takers, const struct peer_take_params *params, const struct link *link,
		 struct taker **ret_taker, struct peer_redirect *ret_redirect);
void takers_leave(struct takers *takers, struct taker *taker);
void takers_redirect_clear(struct peer_redirect *redirect);

/* Returns how many takers there are now. */
unsigned takers_count(struct takers *takers);

#endif
