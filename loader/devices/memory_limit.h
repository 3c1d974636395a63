/* How much memory the machine has, and the control groups of this process let it have. */
#ifndef GPUWM_LOADER_MEMORY_LIMIT_H
#define GPUWM_LOADER_MEMORY_LIMIT_H

#include "../../base/errors.h"

#include <stdint.h>

#define MEMORY_LIMIT_NONE UINT64_MAX

/* Returns the smallest limit on memory of the control group that the process is in, and of those around it that it can see, in bytes:
 * memory.max of version 2; memory.limit_in_bytes and hierarchical_memory_limit of version 1, which counts groups that it can't see too.
 * MEMORY_LIMIT_NONE: there is no limit, or the kernel shows none. root: "", or a folder that stands for /, for tests. */
uint64_t memory_limit(const char *root);

/* Reads the machine's memory, and how much of it is available, in bytes; each is the limit where that is smaller. Returns 0. Fails with -EIO. */
int memory_of_host(const char *root, uint64_t *ret_total, uint64_t *ret_available, struct error *error);

#endif
