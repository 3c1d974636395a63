/* What a user can do when a socket refuses the connection (EACCES). */
#ifndef GPUWM_LIB_ADMISSION_H
#define GPUWM_LIB_ADMISSION_H

#include "../../../base/limits.h"

/* Sets ret_remedy to a sentence that says how this user gets access to the socket at `path`: by joining a group, or by a
 * setting that opens the socket or its folder. Call it after connect failed with EACCES. It looks at the file and at the
 * machine's user database. */
void admission_remedy(const char *path, char ret_remedy[TEXT_BYTES_MAX + 1]);

#endif
