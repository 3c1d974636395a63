/* What a load to GPUs needs besides memory, made ready beside other work: contexts of all
 * its devices at once (90 to 130 ms each), the digest kernel in them, buffers and their
 * registration. Meanwhile the main thread opens the source, plans, creates and maps.
 *
 * Between two loads a loader may keep all of this: the second load finds it ready. */
#ifndef GPUWM_LOADER_PREPARE_H
#define GPUWM_LOADER_PREPARE_H

#include "job.h"
#include "ring.h"

#include "../client/lib/memory.h"

struct prepare;

/* Begins to make the contexts of the job's GPUs, in a thread each. *prepare is NULL, or what an earlier load kept, whose
 * contexts are used again; it stays NULL where the job has no GPU: all that follows takes that. -ENODEV, -ENOTSUP: a
 * device that is not there; -EAGAIN: no thread. */
int prepare_start(const struct job *job, struct prepare **prepare, struct error *error);
/* Whether every context of the job's GPUs was there before it. */
bool prepare_was_kept(const struct prepare *prepare);
/* Begins to make the buffers for a source of so many bytes, unless those that were kept are enough. For a job that keeps
 * its contexts there are as many as any source needs. Once a job. */
int prepare_buffers(struct prepare *prepare, uint64_t bytes, struct error *error);
/* Until the buffers can be read into, which they can before they are pinned. As prepare_wait. */
int prepare_wait_buffers(struct prepare *prepare, memory_progress_fn *progress, void *user_data,
			 struct error *error);
/* Until all is ready. Calls progress with 0 at least every PREPARE_LOOK_MS; nonzero ends the
 * waiting (and is returned), not the work. The first error of it. */
int prepare_wait(struct prepare *prepare, memory_progress_fn *progress, void *user_data, struct error *error);
/* Once its buffers are waited for; NULL without GPUs. Lives until prepare_end. */
struct ring *prepare_ring(struct prepare *prepare);
/* Whether something is still at work PREPARE_END_MS after a cancel or an error: it may hang in the driver. */
bool prepare_busy(struct prepare *prepare);
/* After a load that went well: makes it ready for the next one. Buffers that the driver did not pin are given up. Fails as
 * prepare_check: then it is to be ended. */
int prepare_keep(struct prepare *prepare, struct error *error);
/* Whether every context is still in order: an error that broke one is told by each later call. What the driver says. It
 * hangs where the driver does. NULL is fine. */
int prepare_check(const struct prepare *prepare, struct error *error);
/* Waits for what is at work, then gives everything back: nothing may be on its way from the
 * buffers. NULL. */
struct prepare *prepare_end(struct prepare *prepare);
/* Leaves everything to the end of this process: the kernel takes it back sooner than the driver gives it back, and also
 * where the driver hangs. Returns NULL. */
struct prepare *prepare_leave(struct prepare *prepare);

#define PREPARE_END_MS 1000 /* making a context takes a tenth of that */
#define PREPARE_LOOK_MS 20 /* how late a cancel may be seen */

#endif
