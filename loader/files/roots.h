/* The roots: folders below which the loader opens files, and nowhere else, wherever links lead. */
#ifndef GPUWM_LOADER_ROOTS_H
#define GPUWM_LOADER_ROOTS_H

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

/* ---- opening (beneath.c) ---- */

/* Opens `path` (absolute) for reading, beneath a root that its text begins with. Links may lead
 * anywhere beneath that root, but not out of it. It never blocks on a FIFO.
 *
 * Returns 0 and sets *ret_fd. Fails with -EACCES if the path is beneath no root, or if a link leads
 * out of its root (the message names the roots), with -EBADMSG if the path is a link to a file that is
 * missing, with -ENOENT, and with any other -errno, which names the path. */
int beneath_open(const struct roots *roots, const char *path, int *ret_fd, struct error *error);

/* ---- the roots that a service sets for its own loaders ----
 *
 * They are the lines `root` of [loader] in gpuwmd's configuration. Nothing else in that file concerns a loader. */

/* Reads the roots, and skips all other keys of [loader]. Returns 0 and sets *ret, for roots_clear.
 * A file without any root is an error too, since nothing could be loaded: -EACCES, with the remedy.
 * The same holds for a NULL `path`: the service names no file. Fails with -EINVAL for a wrong line
 * (the message names the file, the line and what is wrong), and with the errno of opening the
 * file. */
int roots_read(const char *path, struct roots *ret, struct error *error);
/* Frees the paths. Zeroed roots are fine. */
void roots_clear(struct roots *roots);

#endif
