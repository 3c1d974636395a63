/* The roots that a service sets for its own loaders: the lines `root` of [loader] in gpuwmd's
 * configuration. Nothing else in that file concerns a loader. */
#ifndef GPUWM_LOADER_ROOTS_H
#define GPUWM_LOADER_ROOTS_H

#include "beneath.h"

/* Reads the roots, and skips all other keys of [loader]. Returns 0 and sets *ret, for roots_clear.
 * A file without any root is an error too, since nothing could be loaded: -EACCES, with the remedy.
 * The same holds for a NULL `path`: the service names no file. Fails with -EINVAL for a wrong line
 * (the message names the file, the line and what is wrong), and with the errno of opening the
 * file. */
int roots_read(const char *path, struct roots *ret, struct error *error);
/* Frees the paths. Zeroed roots are fine. */
void roots_clear(struct roots *roots);

#endif
