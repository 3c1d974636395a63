/* Why this process can't make a thread or a process: the limits that count both, and what raises
 * them. */
#ifndef GPUWM_SERVICE_TASK_LIMITS_H
#define GPUWM_SERVICE_TASK_LIMITS_H

#include <stddef.h>

/* Writes a text for an error's detail: the limits that are set, with their figures, then the
 * remedy. */
void task_limits_explain(char *ret_text, size_t size);

#endif
