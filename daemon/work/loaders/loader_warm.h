/* The inside of loaders that keep their CUDA contexts, for the files that make it up: loader_warm.c has who keeps what and for how
 * long, loader_warm_assign.c gives them jobs, loader_warm_yield.c ends them where something is short, and loader_warm_always.c has
 * contexts made before there is a load. */
#ifndef GPUWM_DAEMON_LOADER_WARM_H
#define GPUWM_DAEMON_LOADER_WARM_H

#include "loader_internal.h"

/* Returns whether the loader keeps contexts, or makes them in order to keep them, and has no job. */
bool warm_is(const struct loader *l);
/* Returns the first such loader from this one on, or NULL. l may be NULL. */
struct loader *warm_next(struct loader *l);
/* Returns the device of a kept context. */
struct device *kept_device(const struct kept *kept);
/* Returns whether a GPU on which the loader has a context is lost. */
bool warm_has_lost(const struct loader *l);
/* Returns for how many seconds the loader keeps its contexts: 0 is not at all, and KEEP_ALWAYS as long as nobody needs the room. */
uint64_t warm_keep_s(const struct loader *l);
/* The loader is warm from now on. */
void warm_stay(struct loader *l);
/* Returns the checker that has been idle for longest, or NULL. */
struct loader *warm_oldest_checker(const struct loader_pool *pool);

/* Returns whether loaders keep contexts for such jobs: loads that operators asked for, and moves of versions that operators made. A loader that has read what
 * another user made ends after its job. */
bool warm_is_for_loads(const struct job *job);
/* Returns whether the loader is idle and made for this job: it has contexts for loads, or it is the checker of the job's user and
 * has a context on the job's GPU. A job that an earlier loader did not begin suits none: what ended that loader may have ended
 * others that keep contexts of the same GPUs. */
bool warm_suits(const struct loader *l, const struct job *job);
/* Returns whether a publish waits for room on the device. */
bool warm_is_awaited(const struct work *work, const struct device *device);

/* ---- loader_warm_yield.c ---- */

/* Returns whether somebody else can't have a context or memory on a GPU because of a context that the loader keeps there. */
bool warm_is_crowding(const struct loader *l);

/* ---- loader_warm_always.c ---- */

/* Has contexts made where they are always to be there. */
void warm_make_always(struct loader_pool *pool);

#endif
