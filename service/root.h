/* A root: a folder that models are loaded from, as this process finds it. What a process can use depends on its user, its groups and
 * its mounts, so that the loader's own judgement counts; gpuwmd --check-config has its own. */
#ifndef GPUWM_SERVICE_ROOT_H
#define GPUWM_SERVICE_ROOT_H

#include "../base/errors.h"

#include <stddef.h>

/* Returns 0 if this process can open what lies below the folder, as far as the folder itself decides it. Fails with -ENOENT,
 * -ENOTDIR, -EACCES or another -errno. A file system may keep the caller waiting. Threads may call it. */
int root_check(const char *path, struct error *error);

/* Sets ret_remedy to what helps this process where it gets -EACCES below a root: its user may belong to a group now that it does not
 * have, or may not read. Asks the machine's user database. Threads may call it. */
void root_access_remedy(char *ret_remedy, size_t size);

#endif
