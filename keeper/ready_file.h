/* The file of --ready-file, by which a container's probe sees whether the keeper's own program is ready. The sockets would not
 * tell: while a new keeper takes over, the old keeper's program may serve them. */
#ifndef GPUWM_KEEPER_READY_FILE_H
#define GPUWM_KEEPER_READY_FILE_H

#include <stdbool.h>

/* Makes the file or removes it. If that fails, the log says why. path NULL: nothing is done. */
void ready_file_set(const char *path, bool ready);

#endif
