/* Where doctor looks at the machine. For tests, $GPUWM_DOCTOR_ROOT is a folder that stands for /: proc, sys, dev, etc and run
 * below it are looked at instead. */
#ifndef GPUWM_CTL_DOCTOR_MACHINE_H
#define GPUWM_CTL_DOCTOR_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PLACE_BYTES 4096

/* Returns ret_place with the path below the root. */
const char *machine_place(const char *path, char ret_place[PLACE_BYTES]);
bool machine_has(const char *path);
/* Reads the beginning of a file, as text. False: it can't be read. */
bool machine_read(const char *path, char *ret_text, size_t size);
/* The rest of the line of a file that begins with `key`, without blanks around it. False: there is none. */
bool machine_line(const char *path, const char *key, char *ret_text, size_t size);
/* Looks a name up, in etc/group and etc/passwd of the root if there is one, else as the C library does. False: no such name. */
bool machine_group(const char *name, gid_t *ret_gid);
bool machine_user(const char *name, uid_t *ret_uid, gid_t *ret_gid);
/* Whether this process runs in a container, and of what kind. */
bool machine_container(char *ret_kind, size_t size);

#endif
