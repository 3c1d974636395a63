/* Which pieces of a part are here, which are on their way, and which are missing. Any thread. */
#ifndef GPUWM_LOADER_PEER_PIECES_H
#define GPUWM_LOADER_PEER_PIECES_H

#include "peer_offer.h"

struct peer_pieces;

/* Pieces that lie side by side in one segment. */
struct peer_run {
	uint32_t segment;
	uint64_t first; /* the first piece's position in the segment */
	uint32_t count;
};

/* Makes a table in which all pieces of the part are missing. The caller owns the part, which must outlive the table. Returns NULL if there
 * is no memory. */
struct peer_pieces *peer_pieces_new(const struct peer_offer_part *part);
struct peer_pieces *peer_pieces_free(struct peer_pieces *pieces);

/* Claims the first missing pieces, `most` at most: they are on their way then. Returns false if none is missing. */
bool peer_pieces_claim(struct peer_pieces *pieces, uint32_t most, struct peer_run *ret);
/* Notes that claimed pieces are here and right, or that they are missing again. */
void peer_pieces_here(struct peer_pieces *pieces, const struct peer_run *run);
void peer_pieces_missing(struct peer_pieces *pieces, const struct peer_run *run);

/* Returns whether all of the run's pieces are here. */
bool peer_pieces_are_here(struct peer_pieces *pieces, const struct peer_run *run);
bool peer_pieces_complete(struct peer_pieces *pieces);
/* Returns the bytes of all pieces that are here. */
uint64_t peer_pieces_bytes(struct peer_pieces *pieces);

/* Returns the bytes of a run, and where they begin in the segment. */
uint64_t peer_run_bytes(const struct peer_offer_part *part, const struct peer_run *run);
static inline uint64_t peer_run_offset(const struct peer_run *run)
{
	return run->first * SUMS_PIECE_BYTES;
}

#endif
