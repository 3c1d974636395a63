/* What a load to GPUs needs besides memory, made ready beside other work: the contexts of all its
 * devices at once (90 to 130 ms each), the digest kernel in them, buffers and their registration.
 * Meanwhile the main thread opens the source, plans, and creates and maps memory.
 *
 * Between two loads a loader may keep all of this, so that the second load finds it ready. A checker
 * may keep its context in the same way, and has no buffers. */
#ifndef GPUWM_LOADER_PREPARE_H
#define GPUWM_LOADER_PREPARE_H

#include "../memory/memory.h"

struct prepare;
struct ring;

/* What a job needs. */
struct prepare_for {
	const char *const *devices; /* of which the GPUs need contexts */
	uint32_t count;
	bool apart; /* each of them gets other bytes */
	bool keeps; /* what is made stays for the next job */
};

/* Begins to make the contexts of the job's GPUs, each in a thread. *prepare is NULL, or what an
 * earlier job kept, whose contexts are used again. If the job has no GPU, *prepare stays NULL,
 * which all functions below accept. Returns 0. Fails with -ENODEV or -ENOTSUP if a device is not
 * there, and with -EAGAIN if a thread could not be made. */
int prepare_start(const struct prepare_for *job, struct prepare **prepare, struct error *error);
/* Returns whether every context of the job's GPUs was there before the job. */
bool prepare_was_kept(const struct prepare *prepare);
/* Begins to make the buffers for a source of this many bytes, unless those that were kept are
 * enough. If the job keeps its contexts, it makes as many as any source needs. Call it once for a
 * job. */
int prepare_buffers(struct prepare *prepare, uint64_t bytes, struct error *error);
/* Return how many readers the copy to the job's GPUs has, and how many bytes a piece of it has at most. */
unsigned prepare_readers(const struct prepare *prepare);
size_t prepare_chunk(const struct prepare *prepare);
/* Waits until the buffers can be read into, which is before they are pinned. Returns as
 * prepare_wait does. */
int prepare_wait_buffers(struct prepare *prepare, memory_progress_fn *progress, void *user_data,
			 struct error *error);
/* Waits until all is ready. It calls progress with 0 at least every PREPARE_LOOK_MS. If progress
 * returns nonzero, the function returns that and waits no longer, but the work goes on. Fails with
 * the first error of the work. */
int prepare_wait(struct prepare *prepare, memory_progress_fn *progress, void *user_data, struct error *error);
/* Returns the buffers, or NULL without GPUs. Call it after waiting for them. They live until
 * prepare_end. */
struct ring *prepare_ring(struct prepare *prepare);
/* Returns whether something is still at work PREPARE_END_MS after a cancel or an error. It may hang
 * in the driver. */
bool prepare_busy(struct prepare *prepare);
/* Makes everything ready for the next load, after a load that went well. It frees buffers that the
 * driver did not pin. Returns 0. Fails as prepare_check does; then the caller ends it. */
int prepare_keep(struct prepare *prepare, struct error *error);
/* Checks whether every context is still usable: if an error broke one, each later call returns that
 * error. Returns 0. Fails with what the driver says. If the driver hangs, so does this call.
 * prepare may be NULL. */
int prepare_check(const struct prepare *prepare, struct error *error);
/* Waits for what is at work, then gives everything back. Nothing may be on its way from the
 * buffers. Returns NULL. */
struct prepare *prepare_end(struct prepare *prepare);
/* Leaves everything to the end of this process: the kernel takes it back sooner than the driver
 * would, and even if the driver hangs. Returns NULL. */
struct prepare *prepare_leave(struct prepare *prepare);

#define PREPARE_END_MS 1000 /* making a context takes a tenth of this */
#define PREPARE_LOOK_MS 20 /* the longest delay before a cancel is seen */

#endif
