/* Opens files beneath the configured roots only, wherever links lead. */
#ifndef GPUWM_LOADER_BENEATH_H
#define GPUWM_LOADER_BENEATH_H

#include "../../base/errors.h"

#include <stddef.h>

struct handed;

/* Absolute paths. The strings belong to the caller. */
struct roots {
	char **paths;
	size_t count;
	const struct handed *
		handed; /* the files that a load was passed, which takes these alone; NULL: it was passed none */
};

/* Opens `path` (absolute) for reading, beneath a root that its text begins with. Links may lead
 * anywhere beneath that root, but not out of it. It never blocks on a FIFO.
 *
 * Returns 0 and sets *ret_fd. Fails with -EACCES if the path is beneath no root, or if a link leads
 * out of its root (the message names the roots), with -EBADMSG if the path is a link to a file that is
 * missing, with -ENOENT, and with any other -errno, which names the path. */
int beneath_open(const struct roots *roots, const char *path, int *ret_fd, struct error *error);

#endif
