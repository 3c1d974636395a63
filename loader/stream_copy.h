/* Copying past the CPU's caches, for bytes that the CPU does not read again: a buffer that the GPU fetches. A plain copy
 * first reads each line that it writes from memory, and later writes it back from a cache; with many readers, what the
 * host's memory does is the limit (docs/benchmarks.md, ranks). */
#ifndef GPUWM_LOADER_STREAM_COPY_H
#define GPUWM_LOADER_STREAM_COPY_H

#include <stddef.h>

/* Copies bytes that do not overlap. They are in memory when it returns: a GPU that is told afterwards finds them. On
 * processors without such stores it is memcpy. */
void stream_copy(void *to, const void *from, size_t bytes);

#endif
