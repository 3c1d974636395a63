/* Groups by name, for errors that say which group to join. */
#ifndef GPUWM_PROTO_GROUP_NAME_H
#define GPUWM_PROTO_GROUP_NAME_H

#include <sys/types.h>

/* The longest name that a message shows whole; useradd and groupadd take 32 bytes. */
#define GROUP_NAME_BYTES 64

/* Sets ret_name to the group's name, or to its number if the machine has no name for it. The
 * machine's user database may lie on a network, so this can take long. */
void group_name(gid_t gid, char ret_name[GROUP_NAME_BYTES]);

#endif
