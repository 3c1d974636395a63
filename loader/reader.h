/* Ranges of one file of a source, each by the fastest way: what the page cache holds is copied from
 * there, the rest is read from the disk past the cache (O_DIRECT), so that large files neither wait for
 * readahead nor push out what is cached.
 *
 * Whether something is cached is asked of each range by RWF_NOWAIT: mincore and cachestat lie to, or
 * refuse, those who do not own the file. A file system that cannot say so, or has no O_DIRECT, is read through the
 * page cache, and reader_note says why. Any thread: several at once are what a disk wants (io_uring was not faster).
 */
#ifndef GPUWM_LOADER_READER_H
#define GPUWM_LOADER_READER_H

#include "source.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/uio.h>

/* What O_DIRECT wants offsets, lengths and addresses to be multiples of: disks want 512 or 4096. */
#define READER_ALIGN 4096

struct reader {
	const struct source_file *file;
	unsigned cold; /* atomic: ranges in a row of which nothing was cached */
	pthread_mutex_t lock; /* guards what follows */
	int direct; /* the descriptor with O_DIRECT; -1: none yet */
	bool no_nowait, no_direct; /* refused once: not asked again */
	char note[TEXT_BYTES_MAX + 1];
};

/* Asking is not free: of a page that is not cached it makes the kernel read it, beside the large reads that the disk is
 * at. After so many ranges in a row that were not cached every READER_ASK_EVERY-th is asked. More than there are readers:
 * all of them begin at once, each perhaps in a hole that ends soon. */
#define READER_COLD 16
#define READER_ASK_EVERY 8

/* Bytes by the way they took. */
struct read_counts {
	uint64_t warm, direct, buffered;
};

/* Places that are asked about to find the end of a hole: enough for one of 128 MiB. */
#define READER_ASKS_MAX 16

/* What is not cached, as far as is worth finding out. */
struct reader_hole {
	uint64_t asked[READER_ASKS_MAX]; /* where the pages are that asking brings into the cache */
	unsigned ask_count;
	size_t bytes; /* at least 1 */
};

/* The file stays the caller's, open for as long as the reader is. Cannot fail. */
void reader_open(const struct source_file *file, struct reader *ret);
void reader_close(struct reader *reader);

/* Copies what is cached from `offset` on into `count` places (at most PIECE_SPANS_MAX): the number of bytes, less than
 * asked for where the cache has a hole. 0: nothing is cached there, or it cannot be known. -EFAULT: the places cannot be
 * written, for lack of memory. Never waits for the disk. */
ssize_t reader_cached(struct reader *reader, const struct iovec *places, int count, uint64_t offset);

/* The range [offset, offset + bytes) where reader_cached found nothing. `to` is congruent to offset modulo
 * READER_ALIGN, and the whole multiples of READER_ALIGN around the range are written.
 * Adds to *counts. -EIO naming file and byte: reading failed, or the file ends before. */
int reader_fetch(struct reader *reader, void *to, uint64_t offset, size_t bytes, struct read_counts *counts,
		 struct error *error);

/* How much of [offset, offset + bytes), where reader_cached found nothing at its beginning, is to be fetched before the
 * cache is asked again: a cached range as long as the hole before it is found, its beginning to READER_STEP. All of it where
 * the file seems cold, or nothing can be asked. */
void reader_hole(struct reader *reader, uint64_t offset, size_t bytes, struct reader_hole *ret);
/* Drops what asking brought in, once the hole was fetched; kept, it would look like cached ranges the next time. */
void reader_hole_forget(struct reader *reader, const struct reader_hole *hole);
#define READER_STEP                                                                                            \
	KIB(128) /* holes of a page are many where memory was short: each costs the disk so much at most */

/* Fetching goes past the page cache, as far as is known: large ranges are best. */
bool reader_is_direct(struct reader *reader);

/* Why the page cache was read through, for the operator; "" when it was not. */
const char *reader_note(const struct reader *reader);

#endif
