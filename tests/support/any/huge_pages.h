/* Huge pages of shared memory, as the kernel is set and as it counts them. */
#ifndef GPUWM_TESTS_ANY_HUGE_PAGES_H
#define GPUWM_TESTS_ANY_HUGE_PAGES_H

#include <stdbool.h>

/* Whether the kernel gives them to mappings that ask, and to nobody else. */
bool huge_pages_advised(void);

/* Kilobytes of shared memory in huge pages, of the whole machine. */
long huge_pages_kilobytes(void);

#endif
