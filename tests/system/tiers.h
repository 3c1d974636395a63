/* Versions that lie on tiers. */
#ifndef GPUWM_TESTS_TIERS_H
#define GPUWM_TESTS_TIERS_H

#include "kept.h"
#include "region_raw.h"

/* A gpuwmd with m@v1, which is LARGE(1); tiers_end drops it and stops gpuwmd. */
struct gpuwmd *tiers_begin(void);
void tiers_end(struct gpuwmd *d);
/* Whether m@TAG lies on this tier, and moves to no other one. */
bool lies_on(struct gpuwmd *d, const char *tag, const char *tier);
/* Moves it, and waits for that. */
void demote(struct gpuwmd *d, const char *ref, const char *tier);
int gpuwm_promote_wait(struct gpuwmd *d, const char *ref);
/* Lines of its log that have these words. */
size_t log_lines(const struct gpuwmd *d, const char *words);
/* argv: ref, seed. As worker_hold, but waits for the version. */
int waiter_hold(int argc, char **argv);
/* worker_reads for one that waits for the version. */
void worker_waits(struct gpuwmd *d, const char *ref, uint64_t seed);

#endif
