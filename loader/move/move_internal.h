/* What the steps of a move share. move.c has their order, and move_memory.c makes the new memory. move_back.c copies from a GPU,
 * move_forth.c to a GPU, move_files.c from files, and
 * move_peer.c from another node. */
#ifndef GPUWM_LOADER_MOVE_INTERNAL_H
#define GPUWM_LOADER_MOVE_INTERNAL_H

#include "../copy/copy.h"
#include "../jobs.h"

#include "../../proto/index/index.h"
#include "../../proto/tier_kind.h"
#include "../../proto/wire/part.h"
#include "../../memory/memory.h"

#include <stdbool.h>
#include <stdint.h>

struct lanes;

struct move {
	struct part_job of; /* the part is only read, so a move that fails leaves it as it was */
	enum tier from, to; /* a part that belongs to `host` lies on ON_DEVICE there */
	bool verifies; /* the files are only compared: move_compare */
	/* while it runs */
	const struct job_move_params *params; /* the job's */
	const struct roots *roots;
	int files; /* the socket that brings the files of a publisher who describes the version; -1: there is none */
	struct work *work;
	struct prepare *prepare; /* NULL: there are no GPUs */
	struct index_map index;
	int twins
		[PART_SEGMENTS_MAX]; /* of segments that the part shares on its new tier: the job's descriptors; else -1 */
	uint32_t twin_count;
	uint64_t bytes; /* of the segments that are made: all but those */
	uint64_t all_bytes;
	struct memory_device device; /* where the new memory lies */
	struct memory_segment
		*segments; /* the new memory, as many as the index has, but nothing for twins; NULL: none yet */
	struct memory_segment
		*made; /* the same without gaps, for targets of copies; as many as move_count_made says */
	struct lanes *lanes; /* NULL: not open, or not needed */
	struct copy_report copied;
	bool compared[PART_SEGMENTS_MAX]; /* the CPU digested what it wrote into the segment */
	struct error *error;
};

static inline uint32_t segment_count(const struct move *move)
{
	return move->index.view.header->segment_count;
}

static inline bool move_makes(const struct move *move, uint32_t segment)
{
	return move->twins[segment] < 0;
}

static inline uint32_t move_count_made(const struct move *move)
{
	return segment_count(move) - move->twin_count;
}

/* ---- new memory (move_memory.c) ---- */

/* Makes and maps new memory for every segment of the index that has no twin, on the device named `id`. Returns 0. Fails with -ENOSPC if there is no room. */
int move_memory_make(struct move *move, const char *id);
/* Zeroes new memory, on devices where new memory is not zero: for callers that write only tensors. Returns 0. */
int move_memory_zero(struct move *move);
/* Unmaps the memory, and makes the descriptors that gpuwmd gets. On host, seals the memory. */
int move_memory_close(struct move *move);
/* Sets *ret to a list of the new segments, twins among them, and the job's index. The move keeps the descriptors. */
void move_memory_list(const struct move *move, struct part *ret);
void move_memory_free(struct move *move);

/* Waits until the GPU and the buffers are ready. Returns at once if the move needs no GPU. */
int move_await_gpu(struct move *move);

/* Adds a note to the job: how fast the memory was copied. `seconds` counts from the time when the first byte could be copied. */
void move_tell_copied(struct move *move, const char *way, double seconds, unsigned threads);

/* The new memory differs, or what arrived for it (*move->error says where): finds out whether the old memory does. Fails, with
 * -EBADMSG if it does, and work->damaged is its segment, and with -EIO if it does not. */
int move_blame(struct move *move);

/* ---- the ways ---- */

/* Each makes the new memory, and fills it. */
int move_back(struct move *move);
int move_forth(struct move *move);
int move_from_files(struct move *move);
int move_from_peer(struct move *move);
/* Returns whether move_from_files failed because of the files: not because of the job, or of the new memory. */
bool move_files_are_wrong(int r);
/* Reads the files, and compares every tensor with the index. Makes no memory. */
int move_prove(struct move *move);

/* ---- files (move_files.c) ----
 *
 * The tensors of a part in the files that describe it, and the tensor of the index that each belongs to. */

/* Tensors of the source, and for each its position in the index. */
struct files_list {
	struct source_tensor *tensors;
	uint32_t *index;
	size_t count;
	uint64_t bytes;
};

struct move_files {
	struct move *move;
	struct handed handed; /* those that a publisher has passed */
	struct source source;
	struct cut cut; /* of the source, if the job's version was cut */
	/* plain: the bytes lie in memory as in the file, or as in the share of a cut; strided: in another order */
	struct files_list plain, strided;
};

/* Opens the job's source, cuts it if the job has a cut plan, and finds every tensor of the index in it, by name, dtype and shape. The
 * caller calls files_close, also after an error. Returns 0. Fails as source_open does, and with -EBADMSG if a tensor is missing or
 * differs in dtype or shape. */
int files_open(struct move_files *files);
void files_close(struct move_files *files);

/* Returns whether the tensor at this position of the index lies in a segment that the part shares: it is not read. */
bool files_shared(const struct move_files *files, uint32_t position);
/* files_first returns the position of the rank's first tensor among the digests of a copy. files_digests returns how many digests the
 * copy has. */
size_t files_first(const struct move_files *files);
size_t files_digests(const struct move_files *files);

/* Reads the strided tensors, and compares their digests with the index. Puts them into the new memory, if `writes`. Returns 0. Fails as
 * move_run does. */
int files_strided(struct move_files *files, bool writes);

/* Compares a tensor that was read from its file with the index. Returns 0. Fails with -EBADMSG; the message names the tensor and the
 * file. Any thread. */
int files_compare(const struct move_files *files, const struct source_tensor *tensor, uint32_t position,
		  const struct digest *digest, struct error *error);

/* Returns where a tensor of the index lies in the new memory. */
void *files_place(const struct move *move, uint32_t position);

/* ---- threads (team.c) ----
 *
 * Threads that do the items of a list, each item in one thread. The calling thread reports their progress. */

struct team;

/* Does item number `item`. `member` is a number below `members` that no other thread has. Calls team_add now and then. Returns 0, also
 * if team_add returned false. Fails with -errno and sets *error; then the team stops. */
typedef int team_fn(struct team *team, uint64_t item, unsigned member, void *data, struct error *error);

struct team_work {
	team_fn *run;
	void *data;
	uint64_t count; /* of items */
	unsigned members; /* threads; at least 1 */
	/* Called by the calling thread only, at least every TEAM_LOOK_MS, with the bytes that team_add counted. If it returns
	 * nonzero, the team stops. */
	memory_progress_fn *progress;
	void *user_data;
};

#define TEAM_LOOK_MS 20 /* the longest delay before a cancel is seen */
#define TEAM_MEMBERS_MAX 16

/* Does all items, in their order. Returns 0. If progress stops the team, returns what progress returned. Fails with the error of
 * the first item that failed, and with -EAGAIN if no thread could be started. No thread is left when it returns. */
int team_run(const struct team_work *work, struct error *error);
/* Counts `bytes` as done. Returns false if the team stops; then the member abandons its item. */
bool team_add(struct team *team, uint64_t bytes);

#endif
