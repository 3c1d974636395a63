/* The roots that a service sets for its own loaders: the [loader] root lines of
 * gpuwmd's configuration. Nothing else in that file concerns a loader. */
#ifndef GPUWM_LOADER_ROOTS_H
#define GPUWM_LOADER_ROOTS_H

#include "beneath.h"

/* Reads them; keys that are not `root` in [loader] are skipped. roots_clear what came. A
 * file without any is an error too, since nothing could be loaded: -EACCES, with the remedy, as
 * for `path` NULL (the service names none). -EINVAL: file, line and what is wrong with it; -errno
 * of opening the file. */
int roots_read(const char *path, struct roots *ret, struct error *error);
/* A zeroed one is fine. */
void roots_clear(struct roots *roots);

#endif
