/* Memfds: descriptors that are said to be host memory, and the memory of regions. */
#ifndef GPUWM_LIB_HOST_MEMFD_H
#define GPUWM_LIB_HOST_MEMFD_H

#include "memory.h"

/* Seals that a memfd must have, and what an error says if it lacks one. */
struct host_seals {
	int seals;
	const char *remedy, *without; /* without: what can still be done */
};

/* Checks that the descriptor is a memfd with these seals, of exactly `bytes`. Fails with -EBADMSG, and with other -errno if the kernel
 * fails a look. */
int host_memfd_check(int fd, uint64_t bytes, const struct host_seals *seals, struct error *error);

/* Host memory that stays writable, of regions: the rows of memory_ops with these names. */
int host_share(const struct memory_device *device, struct memory_segment *segment, struct error *error);
int host_map_shared(const struct memory_device *device, int fd, uint64_t bytes, enum memory_access access,
		    struct memory_segment *ret, struct error *error);

#endif
