/* Why a thread or a process can't be made: the limits of this process that count both, and what raises them. */
#ifndef GPUWM_SERVICE_TASK_LIMITS_H
#define GPUWM_SERVICE_TASK_LIMITS_H

#include <stddef.h>

/* For an error's detail: the limits that are set, with their figures, then the remedy. */
void task_limits_explain(char *ret_text, size_t size);

#endif
