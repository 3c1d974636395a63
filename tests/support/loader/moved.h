/* A part to be moved: its memory on a device or on the host, its index, and a file with the same tensors.
 *
 *   tensor    dtype   shape             lies in
 *   big       U8      [5242883]         segment 1 of 6 MiB, from 512
 *   dense     F32     [2, 3]            segment 0 of 2 MiB
 *   empty     F32     [0, 3]
 *   small     F4      [4]
 *   tied      F32     [3, 2]            where `dense` lies
 *   turned    BF16    [5, 7]            its columns are dense
 *   twisted   I64     [3, 1, 4, 2]      in the order of the dimensions 2, 0, 1, 3 */
#ifndef GPUWM_TESTS_LOADER_MOVED_H
#define GPUWM_TESTS_LOADER_MOVED_H

#include "tests/support/loader/daemon.h"

#define MOVED_GPU "GPU-fa4e0000-0000-4000-8000-000000000000"
#define MOVED_SEGMENTS 2

/* What the job came with, and what came out. */
extern struct part part, moved;

/* Starts a loader, and ends the test. */
void move_begin(void);
void move_end(void);
/* The job went well, or failed with this code and these words. The loader left no descriptor: those of both parts are closed first. */
void move_done(void);
void move_failed(const char *code, const char *says);

bool on_fakecuda(void);
/* The device that the part belongs to. */
const char *moved_device(void);

/* Makes the part's memory on a device: MOVED_GPU or "host". Its bytes are those of the index, but for one, `changed` of segment 0; -1: all
 * are. The descriptors of *ret are the caller's. */
void moved_make(const char *device, int64_t changed, struct part *ret);
/* Only the index. It says that segment 1 is larger by `moved_more` bytes. */
extern uint64_t moved_more;
void moved_index(struct part *ret);
/* Writes the tensors to a safetensors file, in the order of rows. `leave_out` is one that it does not get; NULL: all. */
void moved_file(const char *path, const char *leave_out);

/* Sends the job. `from`, `to`: tiers; `source` may be NULL. The rank is `moved_rank`; with `moved_cut` the source is cut by that plan into
 * `moved_ranks`. */
extern uint64_t moved_rank, moved_ranks;
extern const char *moved_cut;
void send_move(const char *from, const char *to, const char *source, const struct part *sent);
/* Writes the files of three ranks into the folder; the second is the part's. */
void move_write_ranks(const char *leave_out);
/* Sends the job with the index alone, and the folder as its source. */
void move_send_files(const char *from, const char *to);
/* Cancels the job in this phase. */
void move_cancel_when(const char *phase);
/* Takes the segments of loader_moved, and answers. The descriptors of *ret are the caller's. */
void expect_moved(struct part *ret);
/* All bytes of the part on the device are those of the index. On host the memory is sealed. */
void expect_whole(const char *device, const struct part *index, const struct part *segments);

#endif
