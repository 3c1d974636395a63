/* The load job: a source becomes a version, on one device or on several.
 *
 *   main thread: open, plan, begin each publish, create and map memory → copy → check → hand in
 *   beside it:   contexts, buffers (prepare.h) ────────────────────────┤
 *                    └ readers fill the first buffers (copy/copy.h) ───┘
 */
#ifndef GPUWM_LOADER_LOAD_H
#define GPUWM_LOADER_LOAD_H

#include "prepare.h"

/* Loads a version: opens the source, publishes it on each device through the library, copies,
 * seals, verifies what lies on GPUs, and hands it to gpuwmd. Afterwards this process holds none of
 * its memory. `prepare` was started for this job. It belongs to the caller, who ends it after
 * gpuwmd was told the result, since ending it takes time.
 *
 * Returns 0. Fails with the error of any of its steps, with -ECANCELED, and with -ECONNRESET. */
int load_run(const struct job *job, struct work *work, struct prepare *prepare, struct error *error);

/* What a load would take. */
struct load_plan {
	uint64_t tensors, files, bytes;
	/* how many bytes of the files are in the page cache, estimated from samples */
	uint64_t cached;
	struct {
		uint64_t bytes, segments;
	} devices[PARTS_PER_VERSION_MAX]; /* with the names that the job has */
	size_t device_count;
	uint64_t parts[PARTS_PER_VERSION_MAX]; /* the bytes of each, in the order of their publishes */
	size_t part_count;
};

/* Opens the source and makes the plan, and creates neither memory nor contexts. Returns 0 and sets
 * *ret. Fails as load_run does. */
int load_dry_run(const struct job *job, struct work *work, struct load_plan *ret, struct error *error);

#endif
