/* What a descriptor is. The calls that tell are repeated if the kernel fails them for a moment: a gpuwmd that starts looks
 * at what the last one stored, and would lose a version for good if it took a failed call for an answer. */
#ifndef GPUWM_DAEMON_MEMFD_H
#define GPUWM_DAEMON_MEMFD_H

#include <stdint.h>

/* Calls `look` until it does not fail, but only a few times, and waits in between. Returns what `look` returned last: a
 * negative errno is a failure; -EINVAL is an answer, and is not repeated. */
int look_again(int (*look)(int fd, void *data), int fd, void *data);

/* The seals of a memfd. -EINVAL: the descriptor is no memfd; any other -errno: several calls failed, so that nobody
 * knows. The call returns for every kind of file, also of a file system that never answers. */
int memfd_seals(int fd);

/* Sets *ret_bytes to the size of a memfd. Call memfd_seals first: on a file of a file system that never answers,
 * memfd_bytes does not return. -errno: several calls failed. */
int memfd_bytes(int fd, uint64_t *ret_bytes);

#endif
