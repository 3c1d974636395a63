/* How much of a source lies in the page cache. */
#ifndef GPUWM_LOADER_RESIDENCY_H
#define GPUWM_LOADER_RESIDENCY_H

#include "source.h"

#include "../../memory/memory.h"

/* One sample stands for this many bytes. So a large file costs some ms, and for a small one the
 * answer is coarse. */
#define RESIDENCY_SAMPLE_BYTES MIB(2)

/* Sets *ret to how many bytes of all files are in the page cache, estimated from samples. Holes of
 * sparse files do not count, since nothing has read them from a disk. If a sample is not in the
 * cache, the kernel reads a page around it, so each call takes its samples at other places. It
 * calls progress with 0 after each sample.
 *
 * Returns 0. If progress returns nonzero, returns that. Fails with -EOPNOTSUPP, and names the file,
 * if its file system does not say what is cached. */
int residency_of(const struct source *source, memory_progress_fn *progress, void *user_data, uint64_t *ret,
		 struct error *error);

#endif
