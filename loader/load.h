/* The load job: a source becomes a version, on one device or on several.
 *
 *   main thread: open, plan, begin each publish, create and map memory → copy → check → hand in
 *   beside it:   contexts, buffers (prepare.h) ────────────────────────┤
 *                    └ readers fill the first buffers (copy.h) ────────┘
 */
#ifndef GPUWM_LOADER_LOAD_H
#define GPUWM_LOADER_LOAD_H

#include "prepare.h"

/* Opens the source, publishes it on each device through the library, copies,
 * seals, verifies what lies on GPUs, hands it to gpuwmd. None of its memory is left in this process
 * afterwards. prepare: of this job, the caller's, to be ended when all is told: that takes time. Any
 * error of its steps; -ECANCELED; -ECONNRESET. */
int load_run(const struct job *job, struct work *work, struct prepare *prepare, struct error *error);

/* What a load would take. */
struct load_plan {
	uint64_t tensors, files, bytes;
	uint64_t cached; /* bytes of the files that are in the page cache, sampled */
	struct {
		uint64_t bytes, segments;
	} devices[PARTS_PER_VERSION_MAX]; /* as the job names them */
	size_t device_count;
};

/* Opens the source and plans: nothing is created, neither memory nor context. Errors as above. */
int load_dry_run(const struct job *job, struct work *work, struct load_plan *ret, struct error *error);

#endif
