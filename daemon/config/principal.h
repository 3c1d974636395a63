/* Users and groups of this machine, as the configuration names them: by name, or by number without leading zeros. Each call asks
 * the machine's user database, which may lie on a network: at start and at a reload, never while requests wait. */
#ifndef GPUWM_DAEMON_PRINCIPAL_H
#define GPUWM_DAEMON_PRINCIPAL_H

#include <stdbool.h>
#include <stdint.h>

/* Sets *ret_id. Returns false if nobody has the name. */
bool user_find(const char *name, uint32_t *ret_id);
bool group_find(const char *name, uint32_t *ret_id);

#endif
