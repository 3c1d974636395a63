#include "peer_part.h"

#include <pthread.h>
#include <stdlib.h>

enum state { MISSING, CLAIMED, HERE };

struct peer_pieces {
	const struct peer_offer_part *part;
	pthread_mutex_t lock; /* guards what follows */
	uint8_t *states; /* an enum state for each piece */
	uint64_t count, here, bytes;
	uint64_t next; /* no piece before it is missing */
	uint32_t segment; /* which has that piece */
};

struct peer_pieces *peer_pieces_new(const struct peer_offer_part *part)
{
	struct peer_pieces *pieces = calloc(1, sizeof(*pieces));

	if (!pieces)
		return NULL;
	pieces->part = part;
	pieces->count = part->first[part->segment_count];
	pieces->states = calloc(pieces->count + 1, 1);
	if (!pieces->states) {
		free(pieces);
		return NULL;
	}
	pthread_mutex_init(&pieces->lock, NULL);
	return pieces;
}

struct peer_pieces *peer_pieces_free(struct peer_pieces *pieces)
{
	if (!pieces)
		return NULL;
	pthread_mutex_destroy(&pieces->lock);
	free(pieces->states);
	free(pieces);
	return NULL;
}

static uint8_t *states_of(struct peer_pieces *pieces, const struct peer_run *run)
{
	return pieces->states + pieces->part->first[run->segment] + run->first;
}

bool peer_pieces_claim(struct peer_pieces *pieces, uint32_t most, struct peer_run *ret)
{
	const uint64_t *first = pieces->part->first;
	bool any;

	pthread_mutex_lock(&pieces->lock);
	while (pieces->next < pieces->count && pieces->states[pieces->next] != MISSING)
		pieces->next++;
	any = pieces->next < pieces->count;
	while (any && pieces->next >= first[pieces->segment + 1])
		pieces->segment++;
	if (any)
		*ret = (struct peer_run){pieces->segment, pieces->next - first[pieces->segment], 0};
	while (any && ret->count < most && pieces->next < first[pieces->segment + 1] &&
	       pieces->states[pieces->next] == MISSING) {
		pieces->states[pieces->next++] = CLAIMED;
		ret->count++;
	}
	pthread_mutex_unlock(&pieces->lock);
	return any;
}

void peer_pieces_here(struct peer_pieces *pieces, const struct peer_run *run)
{
	uint8_t *states = states_of(pieces, run);

	pthread_mutex_lock(&pieces->lock);
	for (uint32_t i = 0; i < run->count; i++)
		states[i] = HERE;
	pieces->here += run->count;
	pieces->bytes += peer_run_bytes(pieces->part, run);
	pthread_mutex_unlock(&pieces->lock);
}

void peer_pieces_missing(struct peer_pieces *pieces, const struct peer_run *run)
{
	uint8_t *states = states_of(pieces, run);
	uint64_t number = pieces->part->first[run->segment] + run->first;

	pthread_mutex_lock(&pieces->lock);
	for (uint32_t i = 0; i < run->count; i++)
		states[i] = MISSING;
	if (number < pieces->next) {
		pieces->next = number;
		pieces->segment = run->segment;
	}
	pthread_mutex_unlock(&pieces->lock);
}

bool peer_pieces_are_here(struct peer_pieces *pieces, const struct peer_run *run)
{
	const uint8_t *states = states_of(pieces, run);
	bool here = true;

	pthread_mutex_lock(&pieces->lock);
	for (uint32_t i = 0; here && i < run->count; i++)
		here = states[i] == HERE;
	pthread_mutex_unlock(&pieces->lock);
	return here;
}

bool peer_pieces_complete(struct peer_pieces *pieces)
{
	bool complete;

	pthread_mutex_lock(&pieces->lock);
	complete = pieces->here == pieces->count;
	pthread_mutex_unlock(&pieces->lock);
	return complete;
}

uint64_t peer_pieces_bytes(struct peer_pieces *pieces)
{
	uint64_t bytes;

	pthread_mutex_lock(&pieces->lock);
	bytes = pieces->bytes;
	pthread_mutex_unlock(&pieces->lock);
	return bytes;
}

uint64_t peer_run_bytes(const struct peer_offer_part *part, const struct peer_run *run)
{
	uint64_t segment = part->segment_bytes[run->segment];
	uint64_t end = (run->first + run->count) * SUMS_PIECE_BYTES;

	return (end < segment ? end : segment) - peer_run_offset(run);
}
