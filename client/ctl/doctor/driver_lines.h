/* The lines of `gpuwm-loader --probe`: loader/devices/probe.h. */
#ifndef GPUWM_CTL_DOCTOR_DRIVER_LINES_H
#define GPUWM_CTL_DOCTOR_DRIVER_LINES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct driver_line {
	const char *item, *device, *result, *text, *remedy;
};

/* Splits the next line off *text, and moves *text behind it. The function writes zeros into the text, and the members of ret
 * point there. Returns false at the end of the text, or if the last line has no end. */
bool driver_line_take(char **text, struct driver_line *ret);

/* Returns how many GPUs the lines name. */
size_t driver_devices(const char *text);

/* Appends an object for each device to the array, with the keys that gpuwmctl(1) describes. */
void driver_devices_tell(const char *text, json_t *devices);

#endif
