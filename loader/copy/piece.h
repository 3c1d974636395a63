/* A source is read in pieces: ranges of one file that run across tensors, so that many small
 * tensors are one read. A tensor is cut only at multiples of 8 bytes from its beginning, at the
 * words of its digest. */
#ifndef GPUWM_LOADER_PIECE_H
#define GPUWM_LOADER_PIECE_H

#include "../files/source.h"

#include <stdbool.h>

/* The most places that one preadv takes (the kernel's UIO_MAXIOV): a piece is read straight into
 * its tensors. */
#define PIECE_SPANS_MAX 1024

/* The part of a tensor that lies in a piece; the spans of a piece follow each other without a gap. */
struct piece_span {
	uint32_t tensor;
	uint64_t offset, bytes; /* offset in the tensor */
};

struct piece {
	uint32_t file;
	uint64_t offset; /* offset in the file */
	size_t bytes; /* 1 to chunk */
	uint32_t span_count; /* at least 1 */
	struct piece_span spans[PIECE_SPANS_MAX];
};

/* Where the next piece begins; zeroed at first. */
struct piece_cursor {
	size_t tensor;
	uint64_t offset;
};

/* Sets *ret to the next piece, and moves the cursor. Returns false at the end. chunk is a multiple
 * of 8. If possible a piece ends at a page of the file, so that neighbours share no page. Empty
 * tensors are in no piece. */
bool piece_next(const struct source *source, size_t chunk, struct piece_cursor *cursor, struct piece *ret);

struct cut;

/* The same of a source that is cut: sets *ret to the next piece that has bytes for a rank that is
 * wanted. `wanted` has an entry for each rank. In a tensor that is split, a span begins and ends at any
 * byte.
 *
 * The runs of large tensors come in turn, a piece of each rank's, so that all devices get bytes at any
 * time: in the order of the file, one device would get all that is under way. The rest is read in the
 * order of the files. */
bool piece_next_cut(const struct cut *cut, const bool *wanted, size_t chunk, struct piece_cursor *cursor,
		    struct piece *ret);

#endif
