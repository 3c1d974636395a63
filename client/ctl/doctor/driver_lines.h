/* The lines of `gpuwm-loader --probe`: loader/probe.h. */
#ifndef GPUWM_CTL_DOCTOR_DRIVER_LINES_H
#define GPUWM_CTL_DOCTOR_DRIVER_LINES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct driver_line {
	const char *item, *device, *result, *text, *remedy;
};

/* Takes the next line off the text, which it writes zeros into. A line that was cut is none. */
bool driver_line_take(char **text, struct driver_line *ret);

/* How many GPUs the lines tell of. */
size_t driver_devices(const char *text);

/* Adds an object for each device: what programs want to know of it, by the keys of gpuwmctl(1). */
void driver_devices_tell(const char *text, json_t *devices);

#endif
