/* What a memfd is, asked again if the kernel fails to tell. A gpuwmd that starts asks it of what the last one stored: to
 * take a failed call for an answer would lose a version for good. */
#ifndef GPUWM_DAEMON_MEMFD_H
#define GPUWM_DAEMON_MEMFD_H

#include <stdint.h>

/* The seals of a memfd. -EINVAL: the descriptor is no memfd; any other -errno: several calls failed, so that nobody
 * knows. Returns for every kind of file. Waits between the calls. */
int memfd_seals(int fd);

/* Sets *ret_bytes to the size of a memfd. Call memfd_seals first: of a file system that never answers this call does not
 * return. -errno: several calls failed. Waits between the calls. */
int memfd_bytes(int fd, uint64_t *ret_bytes);

#endif
