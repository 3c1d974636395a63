/* How much of a source lies in the page cache. */
#ifndef GPUWM_LOADER_RESIDENCY_H
#define GPUWM_LOADER_RESIDENCY_H

#include "source.h"

#include "../client/lib/memory.h"

/* One sample stands for so much: in a large file they cost some ms, in a small one the answer is coarse. */
#define RESIDENCY_SAMPLE_BYTES MIB(2)

/* Bytes of all files, by samples. Holes of sparse files are not cached: they are no bytes that were read from a disk. Nothing is read that is not there, but for a page around each sample that
 * misses; samples lie anywhere in their piece, so that they do not find those of the last time. progress is called
 * with 0 after each sample, and what it returns, unless 0, ends this. -EOPNOTSUPP, naming the file: its file system can't tell. */
int residency_of(const struct source *source, memory_progress_fn *progress, void *user_data, uint64_t *ret,
		 struct error *error);

#endif
