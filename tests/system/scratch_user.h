/* Processes that use scratch memory by the library. */
#ifndef GPUWM_TESTS_SCRATCH_USER_H
#define GPUWM_TESTS_SCRATCH_USER_H

#include "region_raw.h"

/* A process that has opened the region of 1 MiB on d->device, which it makes if there is none. options: "" or "clear". */
struct process scratch_user_start(struct gpuwmd *d, const char *region, const char *options);
/* Tells it a word, and hears the same word:
 *   a   acquire, however long it takes ('e': it failed)
 *   r   release
 *   w   write 0xa5 into all bytes
 *   n   1,000 times acquire and release, and nobody else holds the memory in between
 * On 'l' it looks, and says '0' if all bytes are zero, 'w' if all are 0xa5, else '?'. */
void scratch_user_does(struct process *p, char word);
/* It closes the region, and ends. */
void scratch_user_ends(struct process *p);

/* Whether gpuwmd says that somebody holds it. */
bool scratch_is_held(struct gpuwmd *d, const char *region);
/* Removes the region. */
void scratch_remove(struct gpuwmd *d, const char *region);

/* scratch_acquire without the library: one of these, or the code. */
enum { SCRATCH_AS_IT_IS = 1, SCRATCH_TO_CLEAR = 2 };
int scratch_raw_acquire(int sock, const struct raw_region *region, int64_t wait_ms);

#endif
