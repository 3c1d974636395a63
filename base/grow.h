/* Memory in files: memfds. */
#ifndef GPUWM_PROTO_GROW_H
#define GPUWM_PROTO_GROW_H

#include "errors.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>

/* With these nobody can change a memfd any more. */
#define SEALS_ALL (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)

/* Grows a file to `bytes` by ftruncate. Beyond RLIMIT_FSIZE the kernel also sends SIGXFSZ, which
 * would end a process that does not expect it: this function takes the signal away and returns an
 * error. `what` begins the message. Returns 0. Fails with -ENOSPC if that limit is in the way (the
 * error names its figure and the remedy), or if there is no memory (the error's remedy is
 * `remedy`). Otherwise it fails with the errno of ftruncate. */
int file_grow(int fd, uint64_t bytes, const char *what, const char *remedy, struct error *error);

/* Writes all bytes where the file stands. Returns 0. Fails with the errno of write, and with -EIO if
 * nothing more is written. */
int file_write_all(int fd, const void *data, size_t bytes);

#endif
