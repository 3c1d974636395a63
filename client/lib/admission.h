/* Why a socket does not let this process connect, and what would. */
#ifndef GPUWM_LIB_ADMISSION_H
#define GPUWM_LIB_ADMISSION_H

#include "../../proto/limits.h"

/* Sets ret_remedy to what makes the socket at `path` let this user in, after connect failed with EACCES: the group to join,
 * or the setting that opens the socket or its folder. Looks at the file and asks the machine's user database. */
void admission_remedy(const char *path, char ret_remedy[TEXT_BYTES_MAX + 1]);

#endif
