/* Opening files beneath the configured roots only, whatever links say. */
#ifndef GPUWM_LOADER_BENEATH_H
#define GPUWM_LOADER_BENEATH_H

#include "../proto/errors.h"

#include <stddef.h>

/* Absolute paths; the strings are the caller's. */
struct roots {
	char **paths;
	size_t count;
};

/* Opens `path` (absolute) for reading, beneath a root that its text begins
 * with; links may lead anywhere beneath that root, not out of it. Never
 * blocks on a FIFO. -EACCES: beneath no root, or a link leads out of it: names the
 * roots; -ENOENT; other -errno naming the path. */
int beneath_open(const struct roots *roots, const char *path, int *ret_fd, struct error *error);

#endif
