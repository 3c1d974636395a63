/* The inside of a copy, which its readers (copy_reader.c) share with copy.c, which runs them. */
#ifndef GPUWM_LOADER_COPY_INTERNAL_H
#define GPUWM_LOADER_COPY_INTERNAL_H

#include "copy.h"
#include "../devices/lanes.h"
#include "reader.h"
#include "../cut/cut.h"

#include "../../memory/memory.h"

#include <pthread.h>
#include <stdbool.h>

/* What a reader of a cut takes at once: it and the runs of a rank stay in a CPU's cache that two readers may share. */
#define COPY_CUT_STEP_BYTES KIB(256)

/* The readers of one copy, and what they share. */
struct crew {
	const struct copy *copy;
	const struct copy_target *hosts; /* the targets, if there are no lanes */
	size_t host_count;
	bool straight; /* bytes go straight into the memory of the only host */
	bool small_pages; /* the hosts' memory has small pages: one reader at a time writes it by calls */
	size_t chunk;
	struct reader *files; /* one for each file */
	struct digest_sum *sums; /* one for each tensor; atomic; NULL: see shares */
	struct share_sums shares; /* of a cut */
	bool ranks[PARTS_PER_VERSION_MAX]; /* the ranks of a cut that have a target */
	uint64_t done; /* bytes; atomic */
	bool stop; /* atomic */
	bool calls_in_use; /* atomic: one of the readers writes by calls now */
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	pthread_cond_t opened; /* the lanes are open, or a slot is free */
	struct lanes *lanes; /* NULL: they are not open yet, or none are needed */
	double began; /* when the lanes were opened */
	pthread_t threads[COPY_THREADS_MAX];
	unsigned started, wanted, most; /* numbers of readers */
	struct piece_cursor next;
	/* the slots of the ring that no reader has; the first one was sent longest ago */
	size_t *slots;
	size_t slot_count, usable; /* slots from `usable` on are sent once, and not used again */
	unsigned running;
	struct read_counts counts;
	struct error error; /* the error of the first reader that failed */
};

/* A place in a piece. */
struct spot {
	uint32_t span;
	uint64_t offset; /* offset in the span */
};

/* The state of one reader thread. */
struct hand {
	struct crew *crew;
	struct lanes *lanes; /* NULL: they are not open yet */
	struct reader *file; /* the file of the piece */
	char *slot_buffer; /* with a ring: the buffer that the piece is sent from */
	size_t slot; /* its number in the ring */
	/* memory of its own, or NULL: a buffer as large, and of a cut COPY_CUT_STEP_BYTES before it, for a rank's runs */
	char *own;
	char *at; /* where the next bytes go: in one of the two buffers */
	bool by_calls; /* it writes into host memory by calls, not through the mapping */
	struct read_counts counts;
	struct spot spot; /* how far the reader is with the piece */
	size_t done; /* the same position in bytes */
	struct piece piece;
};

/* Moves the spot forward by at most `bytes`, within one span. Returns by how much. */
static inline size_t spot_advance(const struct piece *piece, struct spot *spot, size_t bytes)
{
	uint64_t left = piece->spans[spot->span].bytes - spot->offset;

	if (bytes < left) {
		spot->offset += bytes;
		return bytes;
	}
	*spot = (struct spot){.span = spot->span + 1};
	return (size_t)left;
}

/* Returns where byte `done` of the piece lies in the buffer of the ring, if it lies as in the file. */
static inline char *hand_in_slot(const struct hand *hand, size_t done)
{
	return hand->slot_buffer + hand->piece.offset % READER_ALIGN + done;
}

static inline bool crew_stopped(const struct crew *crew)
{
	return __atomic_load_n(&crew->stop, __ATOMIC_RELAXED);
}

/* Makes each reader end after its present step. */
static inline void crew_stop(struct crew *crew)
{
	__atomic_store_n(&crew->stop, true, __ATOMIC_RELAXED);
}

void counts_add(struct read_counts *total, const struct read_counts *counts);

/* Writes bytes into the memory of a host. Returns 0. Fails with the codes of host_write. */
int hand_put(const struct hand *hand, const struct copy_target *host, char *to, const char *from, size_t bytes,
	     struct error *error);

/* The thread of a reader: takes pieces until there are no more, or the crew is stopped. */
void *copy_reader(void *crew);

/* ---- of a source that is cut (copy_cut.c) ---- */

/* Returns whether the next `bytes` of the piece can't be read straight into the ring's buffer: they have bytes of several
 * rows. */
bool copy_cut_gathers(const struct hand *hand, size_t bytes);
/* Puts the next `bytes` of the piece, which lie at `from`, where they belong, and digests them.
 * Returns 0. Fails with -ENOMEM, and with the codes of host_write. */
int copy_cut_deliver(struct hand *hand, const char *from, size_t bytes, struct error *error);
/* Sends the piece to each target. Returns as lanes_send does. */
int copy_cut_send(const struct hand *hand, struct error *error);
/* Sets the digest of each share that belongs to the rank of a target. */
void copy_cut_digests(const struct crew *crew, struct digest *ret);

/* ---- writing to host by calls (host_write.c) ----
 *
 * Fills the memory of `host` by calls. With small pages this takes two thirds of the CPU time of
 * writing through the mapping: there are no faults, no zeroing, and nothing to unmap. But the
 * kernel lets only one thread at a time write to a memfd. So one reader does, and the others go
 * through the mapping meanwhile. Huge pages come with the mapping only. */

/* Copies to `to`, which lies in one of the segments (there is at least one), mapped for writing. A
 * few bytes are copied through the mapping. Returns 0. Fails with the code of pwrite, such as
 * -ENOSPC or -ENOMEM. Any thread may call it, but see above. */
int host_write(const struct memory_segment *segments, uint32_t count, char *to, const char *from, size_t bytes,
	       struct error *error);

#endif
