/* Looks at descriptors. If the kernel fails such a call, these functions repeat it: a new gpuwmd looks at what the last one
 * stored, and would lose a version for good if it took a failed call for an answer. */
#ifndef GPUWM_DAEMON_MEMFD_H
#define GPUWM_DAEMON_MEMFD_H

#include <stdint.h>

/* Calls `look` until it succeeds, but only a few times, and waits in between. Returns what `look` returned last. Every
 * negative errno is a failure but -EINVAL, which is an answer. */
int look_again(int (*look)(int fd, void *data), int fd, void *data);

/* Returns the seals of a memfd. -EINVAL: the descriptor is no memfd; any other -errno: all calls failed, so the descriptor
 * may be one. The function never blocks, also not on a file of a file system that never answers. */
int memfd_seals(int fd);

/* Sets *ret_bytes to the size of a memfd. -errno: all calls failed. Call memfd_seals first: on a file of a file system that
 * never answers, memfd_bytes blocks for ever. */
int memfd_bytes(int fd, uint64_t *ret_bytes);

#endif
