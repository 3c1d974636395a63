/* Whether memory can be read and written, asked without a fault: the kernel copies a byte. */
#ifndef GPUWM_TESTS_ANY_REACH_H
#define GPUWM_TESTS_ANY_REACH_H

#include <stdbool.h>

/* The byte stays what it is. */
bool can_read(void *address);
bool can_write(void *address);

#endif
