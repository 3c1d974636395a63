/* Host memory that stays writable: the rows of memory_ops with these names. */
#ifndef GPUWM_LIB_HOST_SHARED_H
#define GPUWM_LIB_HOST_SHARED_H

#include "memory.h"

int host_share(const struct memory_device *device, struct memory_segment *segment, struct error *error);
int host_map_shared(const struct memory_device *device, int fd, uint64_t bytes, enum memory_access access,
		    struct memory_segment *ret, struct error *error);

#endif
