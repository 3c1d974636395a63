/* The file that this process runs. */
#ifndef GPUWM_SERVICE_OWN_PROGRAM_H
#define GPUWM_SERVICE_OWN_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

/* Sets ret_path to the path of the program's file, or to "" if the kernel does not tell it. Returns whether that file was removed, or
 * replaced by another one, since the program was started. Touches no disk. Threads may call it. */
bool own_program_is_gone(char *ret_path, size_t size);

#endif
