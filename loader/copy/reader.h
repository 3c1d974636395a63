/* Reads ranges of one file of a source, each by the fastest way. What the page cache holds is
 * copied from there. The rest is read from the disk past the cache (O_DIRECT), so that large files
 * neither wait for readahead nor push out what is cached.
 *
 * RWF_NOWAIT asks for each range whether it is cached: mincore and cachestat lie to users who do
 * not own the file, or refuse them. If a file system can't answer that, or has no O_DIRECT, the
 * file is read through the page cache, and reader_note says why. Any thread may read: a disk wants
 * several reads at once (io_uring was not faster). */
#ifndef GPUWM_LOADER_READER_H
#define GPUWM_LOADER_READER_H

#include "../files/source.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/uio.h>

/* O_DIRECT wants offsets, lengths and addresses to be multiples of this: disks want 512 or 4096. */
#define READER_ALIGN 4096

struct reader {
	const struct source_file *file;
	unsigned cold; /* atomic: how many ranges in a row had nothing cached */
	/* atomic: the kernel refused once, so the reader does not try again */
	bool no_nowait, no_direct;
	pthread_mutex_t lock; /* guards what follows */
	int direct; /* the descriptor with O_DIRECT; -1: not opened yet */
	char note[TEXT_BYTES_MAX + 1];
};

/* Asking is not free: if the page is not cached, the kernel reads it, besides the large reads that
 * the disk is doing. So after this many ranges in a row that were not cached, the reader asks only
 * for every READER_ASK_EVERY-th range. The number is larger than the number of readers: all of them
 * begin at once, and each may begin in a hole that ends soon. */
#define READER_COLD 16
#define READER_ASK_EVERY 8

/* Bytes by the way that they took. */
struct read_counts {
	uint64_t warm, direct, buffered;
};

/* How often the reader asks to find the end of a hole: enough for one of 128 MiB. */
#define READER_ASKS_MAX 16

/* A range that is not cached, as far as it is worth finding out. */
struct reader_hole {
	uint64_t asked[READER_ASKS_MAX]; /* the pages that asking brings into the cache */
	unsigned ask_count;
	size_t bytes; /* at least 1 */
};

/* Makes a reader of the file. The file stays the caller's, open for as long as the reader is used.
 * It can't fail. */
void reader_open(const struct source_file *file, struct reader *ret);
void reader_close(struct reader *reader);

/* Copies what is cached from `offset` on into `count` places (at most PIECE_SPANS_MAX). It never
 * waits for the disk. Returns the number of bytes, which is less than asked for if the cache has a
 * hole, and 0 if nothing is cached there or the file system does not say. Fails with -EFAULT if the
 * places can't be written, for lack of memory. */
ssize_t reader_cached(struct reader *reader, const struct iovec *places, int count, uint64_t offset);

/* Reads the range [offset, offset + bytes), where reader_cached found nothing, and adds to *counts.
 * `to` must be congruent to `offset` modulo READER_ALIGN. The function also writes the rest of the
 * first and last blocks of READER_ALIGN bytes. Returns 0. Fails with -EIO if reading failed or the
 * file ends before; the message names the file and the byte. */
int reader_fetch(struct reader *reader, void *to, uint64_t offset, size_t bytes, struct read_counts *counts,
		 struct error *error);

/* Finds out how much of [offset, offset + bytes), whose beginning is not cached, to fetch before
 * asking the cache again. It finds a cached range that is at least as long as the hole before it,
 * with its beginning exact to READER_STEP. If the file seems not to be cached at all, or the kernel
 * does not say, *ret is the whole range. */
void reader_hole(struct reader *reader, uint64_t offset, size_t bytes, struct reader_hole *ret);
/* Drops the pages that asking brought in, once the hole was fetched. Otherwise they would look like
 * cached ranges the next time. */
void reader_hole_forget(struct reader *reader, const struct reader_hole *hole);
#define READER_STEP                                                                                            \
	KIB(128) /* a hole of one page makes the disk read at most this much; short memory makes many */

/* Returns whether fetching goes past the page cache, as far as is known. Then large ranges are
 * best. */
bool reader_is_direct(struct reader *reader);

/* Returns why the file was read through the page cache, for the operator, or "" if it was not. */
const char *reader_note(const struct reader *reader);

/* ---- pieces (piece.c) ----
 *
 * A source is read in pieces: ranges of one file that run across tensors, so that many small
 * tensors are one read. A tensor is cut only at multiples of 8 bytes from its beginning, at the
 * words of its digest. */

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
