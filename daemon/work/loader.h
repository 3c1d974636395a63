/* Loader processes: one a job, and one standby that is ready for the next. After a load one may keep its CUDA contexts
 * for the next load ([loader] keep_context). They are gpuwmd's children, or a service's, of whose end the connection and a pidfd tell. A loader may hang in the kernel, where nothing ends it: it is then forgotten. */
#ifndef GPUWM_DAEMON_LOADER_H
#define GPUWM_DAEMON_LOADER_H

#include "../../proto/message.h"
#include "../ledger/segment.h"

struct work;
struct session;
struct job;
struct device;
struct loader;
struct loader_pool;

/* NULL: out of memory. Starts nothing. */
struct loader_pool *loader_pool_new(struct work *work);
/* Kills what runs, waits for nobody. */
struct loader_pool *loader_pool_free(struct loader_pool *pool);

/* Keeps a standby loader from now on; ready is called once, when the first one
 * has spoken or could not be started. */
void loader_pool_start(struct loader_pool *pool, void (*ready)(void *data), void *data);
/* Gives queued jobs to standby loaders, starts loaders that are missing, ends those that are not needed any more. NULL is
 * fine. */
void loader_pool_turn(struct loader_pool *pool);
/* Tells the loaders whose jobs were cancelled. NULL is fine. */
void loader_pool_cancel(struct loader_pool *pool);
/* Asks the standby loader for the devices anew; without one: the next says it
 * anyway. NULL is fine: descriptors are still being closed when the pool is gone. */
void loader_pool_report(struct loader_pool *pool);
/* The same, unless they were asked for within the last second. */
void loader_pool_refresh(struct loader_pool *pool);
/* Of the device: contexts that will be gone without anybody's doing, those of loads, verifies and the scrub but for
 * `but`'s (may be NULL) and those that wait for room themselves. */
uint64_t loader_pool_passing(const struct loader_pool *pool, const struct device *device,
			     const struct loader *but);
uint64_t loader_pool_count(const struct loader_pool *pool); /* processes */
bool loader_pool_standby(const struct loader_pool *pool);
/* Why the last one could not be started; NULL: it could. */
const struct error *loader_pool_failure(const struct loader_pool *pool);

/* What its connection says. */
struct job *loader_job(const struct loader *loader);
/* Who it is: its pid, and a pidfd of itself (taken over; -1: none), by which the end of one that is no
 * child is known. -errno: it can't be watched. */
int loader_introduce(struct loader *loader, uint64_t pid, int pidfd);
void loader_is_standby(struct loader *loader);
/* It has begun its job: nobody else can do that any more. */
void loader_has_begun(struct loader *loader);
/* Whether it is to keep its contexts and wait for another load, when its job has gone well: then loader_stays. */
bool loader_may_stay(const struct loader *loader);
/* Its job has ended, and it keeps its contexts. */
void loader_stays(struct loader *loader);
/* It has made the contexts that it is to keep, or (error) could not. */
void loader_is_warm(struct loader *loader, const struct error *error);
/* Whether it is charged with a context on the device. */
bool loader_has_context(const struct loader *loader, const struct device *device);
/* Writes `keeping`: which loaders keep contexts of which GPUs, and for how long. */
void loader_pool_put(struct message_writer *w, const struct loader_pool *pool);
/* Its job has ended, it will exit by itself. */
void loader_is_leaving(struct loader *loader);
/* Its connection ended. */
void loader_lost(struct loader *loader);

/* Asks it to end its job, once; kills it when it does not. */
void loader_cancel(struct loader *loader);
/* Ends the loader's job with this error and kills the loader. Does nothing if the loader has no job. */
void loader_fail(struct loader *loader, const struct error *error);
/* Replaces the loaders that stand by with new ones. */
void loader_pool_renew(struct loader_pool *pool);
/* A job that has something to do must make progress: config.check_stall_ms, load_stall_ms. */
void loader_watch(struct loader *loader);
/* The same for all of them: the limits may have changed, and how long contexts are kept. */
void loader_pool_watch(struct loader_pool *pool);
/* Drops one use of the charge when the process is gone, which may be never. */
void loader_keep(struct loader *loader, struct shared_charge *shared);
/* Every loader that may still have this part of a version mapped keeps a use of the charge. NULL is fine for both. */
void loader_pool_keep(struct loader_pool *pool, const struct version_id *version, uint32_t replica,
		      struct shared_charge *shared);
/* The loader of a running job; NULL: the pointer is no such job. */
struct loader *loader_of(const struct loader_pool *pool, const void *job);

#endif
