/* Retiring all that one user published. */
#ifndef GPUWM_CTL_RETIRE_USER_H
#define GPUWM_CTL_RETIRE_USER_H

#include "command.h"

#include <sys/types.h>

/* Retires every version that the user made other than as an operator, with the aliases that name it, and shows what became of them.
 * after_ms: by force, as gpuwm_retire_by_force; NULL: without. If a version can't be retired, the others are, and the call returns
 * EXIT_IN_USE. Returns an exit code. */
int retire_user(struct gpuwm_client *client, const struct arguments *arguments, uid_t uid,
		const uint64_t *after_ms);

#endif
