/* Which machine this is: containers of one machine are on the same one. */
#ifndef GPUWM_BASE_MACHINE_H
#define GPUWM_BASE_MACHINE_H

#include <stdbool.h>

/* Returns the kernel's boot_id, or NULL if it can't be read. Any thread. */
const char *machine_name(void);
/* Whether a node that has this name, which may be NULL, is on this machine. */
bool machine_is_this(const char *name);

#endif
