/* The pieces of a source that is cut. The runs of large tensors come in turn, a piece of each rank's,
 * so that all devices get bytes at any time: in the order of the file, one device would get all that
 * is under way. The rest is read in the order of the files, as copy/piece.h has it. */
#ifndef GPUWM_LOADER_CUT_PIECE_H
#define GPUWM_LOADER_CUT_PIECE_H

#include "cut.h"
#include "../copy/piece.h"

/* Sets *ret to the next piece that has bytes for a rank that is wanted, and moves the cursor, which
 * is zeroed at first. `wanted` has an entry for each rank. Returns false at the end. chunk is a
 * multiple of 8. In a tensor that is split, a span begins and ends at any byte. */
bool cut_piece_next(const struct cut *cut, const bool *wanted, size_t chunk, struct piece_cursor *cursor,
		    struct piece *ret);

#endif
