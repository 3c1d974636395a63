/* What the steps of a move share. move.c has their order, and move_memory.c makes the new memory. move_back.c copies from a GPU,
 * move_forth.c to a GPU, and move_files.c from files. */
#ifndef GPUWM_LOADER_MOVE_INTERNAL_H
#define GPUWM_LOADER_MOVE_INTERNAL_H

#include "../copy/copy.h"
#include "move.h"

#include "../../proto/index/index.h"
#include "../../proto/wire/part.h"

struct lanes;

struct move {
	const struct job *job;
	struct work *work;
	struct prepare *prepare; /* NULL: the move needs no GPU */
	struct index_map index;
	uint64_t bytes; /* of all segments */
	struct memory_device device; /* where the new memory lies */
	struct memory_segment *segments; /* the new memory, as many as the index has; NULL: none yet */
	struct lanes *lanes; /* NULL: not open, or not needed */
	struct copy_report copied;
	struct error *error;
};

static inline uint32_t segment_count(const struct move *move)
{
	return move->index.view.header->segment_count;
}

/* ---- new memory (move_memory.c) ---- */

/* Makes and maps new memory for every segment of the index, on the device named `id`. Returns 0. Fails with -ENOSPC if there is no room. */
int move_memory_make(struct move *move, const char *id);
/* Zeroes new memory, on devices where new memory is not zero: for callers that write only tensors. Returns 0. */
int move_memory_zero(struct move *move);
/* Unmaps the memory, and makes the descriptors that gpuwmd gets. On host, seals the memory. */
int move_memory_close(struct move *move);
/* Sets *ret to a list of the new segments and the job's index. The move keeps the descriptors. */
void move_memory_list(const struct move *move, struct part *ret);
void move_memory_free(struct move *move);

/* Waits until the GPU and the buffers are ready. Returns at once if the move needs no GPU. */
int move_await_gpu(struct move *move);

/* Adds a note to the job: how fast the memory was copied. `seconds` counts from the time when the first byte could be copied. */
void move_tell_copied(struct move *move, const char *way, double seconds, unsigned threads);

/* ---- the ways ---- */

/* Each makes the new memory, and fills it. */
int move_back(struct move *move);
int move_forth(struct move *move);
int move_from_files(struct move *move);
/* Reads the files, and compares every tensor with the index. Makes no memory. */
int move_prove(struct move *move);

#endif
