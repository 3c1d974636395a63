/* Memory in files: memfds. */
#ifndef GPUWM_PROTO_GROW_H
#define GPUWM_PROTO_GROW_H

#include "errors.h"

#include <stdint.h>

/* ftruncate, up to `bytes`. Beyond RLIMIT_FSIZE the kernel sends SIGXFSZ besides, which ends a process that asked
 * for nothing of the kind: here it is only an error. -ENOSPC: that limit, told with its figure and the remedy, or
 * no memory for it (`remedy`); other errnos as they come. `what` begins the message. */
int file_grow(int fd, uint64_t bytes, const char *what, const char *remedy, struct error *error);

#endif
