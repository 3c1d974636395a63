/* The n-th allocation fails. A test program that includes this file is linked with malloc, calloc, realloc, reallocarray
 * and strdup of its own, in front of the real ones.
 *
 *   for (unsigned n = 1; fail_alloc_arm(n), r = call(...), fail_alloc_disarm(); n++)
 *           cr_assert_eq(r, -ENOMEM);
 *
 * goes through every allocation of the call, until one goes by without a failure.
 * Only the thread that armed it counts. Under AddressSanitizer strndup, asprintf and their like are not seen. */
#ifndef GPUWM_TESTS_FAIL_ALLOC_H
#define GPUWM_TESTS_FAIL_ALLOC_H

#include <stdbool.h>

/* The n-th allocation of this thread from now on fails; 1 is the next one. */
void fail_alloc_arm(unsigned n);

/* Returns whether one has failed since. No further one fails. */
bool fail_alloc_disarm(void);

#endif
