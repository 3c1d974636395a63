/* Filling the memory of `host` with calls. Of small pages that takes two thirds of the CPU time of touching them first:
 * no faults, no zeros, nothing to unmap. But the kernel lets one thread at a time write to a memfd: one does, and the
 * others go through the mapping meanwhile. Huge pages come with the mapping only. */
#ifndef GPUWM_LOADER_HOST_WRITE_H
#define GPUWM_LOADER_HOST_WRITE_H

#include "../client/lib/memory.h"

#include <stdbool.h>

/* Whether segments of `host` are of small pages here. */
bool host_write_pays(void);

/* Copies to `to`, which lies in one of the segments (at least one), mapped for writing. Little is copied through the
 * mapping. What pwrite says, e.g. -ENOSPC, -ENOMEM. Any thread; see above. */
int host_write(const struct memory_segment *segments, uint32_t count, char *to, const char *from, size_t bytes,
	       struct error *error);

#endif
