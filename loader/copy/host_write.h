/* Fills the memory of `host` by calls. With small pages this takes two thirds of the CPU time of
 * writing through the mapping: there are no faults, no zeroing, and nothing to unmap. But the
 * kernel lets only one thread at a time write to a memfd. So one reader does, and the others go
 * through the mapping meanwhile. Huge pages come with the mapping only. */
#ifndef GPUWM_LOADER_HOST_WRITE_H
#define GPUWM_LOADER_HOST_WRITE_H

#include "../../memory/memory.h"

#include <stdbool.h>

/* Returns whether segments of `host` have small pages on this machine. */
bool host_write_pays(void);

/* Copies to `to`, which lies in one of the segments (there is at least one), mapped for writing. A
 * few bytes are copied through the mapping. Returns 0. Fails with the code of pwrite, such as
 * -ENOSPC or -ENOMEM. Any thread may call it, but see above. */
int host_write(const struct memory_segment *segments, uint32_t count, char *to, const char *from, size_t bytes,
	       struct error *error);

#endif
