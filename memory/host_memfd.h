/* A descriptor that is said to be host memory. */
#ifndef GPUWM_LIB_HOST_MEMFD_H
#define GPUWM_LIB_HOST_MEMFD_H

#include "../base/errors.h"

#include <stdint.h>

/* Seals that a memfd must have, and what an error says if it lacks one. */
struct host_seals {
	int seals;
	const char *remedy, *without; /* without: what can still be done */
};

/* Checks that the descriptor is a memfd with these seals, of exactly `bytes`. Fails with -EBADMSG, and with other -errno if the kernel
 * fails a look. */
int host_memfd_check(int fd, uint64_t bytes, const struct host_seals *seals, struct error *error);

#endif
