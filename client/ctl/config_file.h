/* Which file gpuwmd has its configuration from. */
#ifndef GPUWM_CTL_CONFIG_FILE_H
#define GPUWM_CTL_CONFIG_FILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Where the system's gpuwmd has it, as its unit says. */
#define CONFIG_FILE_SYSTEM "/etc/gpuwm/gpuwmd.conf"

/* Sets ret_path to the file that the gpuwmd of this status runs with. A relative path becomes one that leads there from
 * anywhere. Returns false if gpuwmd runs without a file. */
bool config_file_told(const json_t *status, char *ret_path, size_t size);

#endif
