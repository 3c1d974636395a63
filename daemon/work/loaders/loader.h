/* Loader processes. Each job has one, and one more stands by for the next job. After a load, a loader may keep its CUDA contexts
 * for the next load ([loader] keep_context); after a check on a GPU, for the next checks of the same user ([loader] keep_checker).
 * Loaders are gpuwmd's children, or belong to a service: then gpuwmd learns of
 * their end by the connection and a pidfd. gpuwmd forgets a loader that hangs in the kernel, where no signal ends it. */
#ifndef GPUWM_DAEMON_LOADER_H
#define GPUWM_DAEMON_LOADER_H

#include "../../../proto/wire/message.h"
#include "../../ledger/segment.h"
#include "../../../base/errors.h"

struct device;
struct ipc_copy;
struct job;
struct loader;
struct loader_pool;
struct message_writer;
struct session;
struct work;

/* Makes a pool, which starts no loader yet. Returns NULL if there is no memory. */
struct loader_pool *loader_pool_new(struct work *work);
/* Kills all loaders without waiting for their end, and frees the pool. Returns NULL; NULL is fine. */
struct loader_pool *loader_pool_free(struct loader_pool *pool);

/* Starts a standby loader and keeps one from now on. Calls `ready` once, when the first loader has said hello or could not be
 * started. */
void loader_pool_start(struct loader_pool *pool, void (*ready)(void *data), void *data);
/* Gives queued jobs to standby loaders, starts loaders that are missing, and ends loaders that are not needed any more. NULL is
 * fine. */
void loader_pool_turn(struct loader_pool *pool);
/* Sends a message to each loader whose job was cancelled. NULL is fine. */
void loader_pool_cancel(struct loader_pool *pool);
/* Asks the standby loader to report the devices again. If there is none, the next loader's hello reports them. NULL is fine:
 * some descriptors are closed after the pool is gone. */
void loader_pool_report(struct loader_pool *pool);
/* The same, unless gpuwmd asked within the last second. */
void loader_pool_refresh(struct loader_pool *pool);
/* Returns the bytes of contexts on the device that will go without help. Leaves out those of `but` (may be NULL), and of loaders
 * whose jobs wait for room themselves. */
uint64_t loader_pool_passing(const struct loader_pool *pool, const struct device *device,
			     const struct loader *but);
/* Returns how many loader processes there are, besides those that hold a copy. */
uint64_t loader_pool_count(const struct loader_pool *pool);
/* Returns whether a loader stands by. */
bool loader_pool_standby(const struct loader_pool *pool);
/* Returns whether loader_pool_report has whom to ask, or a loader starts, which reports by itself. */
bool loader_pool_may_report(const struct loader_pool *pool);
/* Returns the pid of the loader that gets the next job, as the loader says it; 0: none stands by. */
uint64_t loader_pool_standby_pid(const struct loader_pool *pool);
/* Returns why the last loader could not be started, or NULL. */
const struct error *loader_pool_failure(const struct loader_pool *pool);

/* ---- what its connection says ---- */

/* Returns the job that the loader has, or NULL. */
struct job *loader_job(const struct loader *loader);
/* Returns the pid that loader_introduce set, or 0. */
uint64_t loader_pid(const struct loader *loader);
/* Sets the loader's pid, and takes over a pidfd of its process (-1: none), by which gpuwmd learns of the end of a loader that is
 * not its child. Fails with -errno if the pidfd can't be watched. */
int loader_introduce(struct loader *loader, uint64_t pid, int pidfd);
/* The loader has said hello. */
void loader_is_standby(struct loader *loader);
/* The loader has said something of its job: the job has begun, so no other loader can get it any more. */
void loader_has_begun(struct loader *loader);
/* Returns whether the loader, whose job went well, is to keep its contexts and wait for another job (loader_stays). */
bool loader_may_stay(const struct loader *loader);
/* The loader's job has ended, and the loader keeps its contexts. */
void loader_stays(struct loader *loader);
/* The loader has made the contexts that it is to keep, or (error) could not. */
void loader_is_warm(struct loader *loader, const struct error *error);
/* Returns whether the loader is charged with a context on the device. */
bool loader_has_context(const struct loader *loader, const struct device *device);
/* Writes `keeping`: which loaders keep contexts of which GPUs, and for how long. with_users: also for whose checks. */
void loader_pool_put(struct message_writer *w, const struct loader_pool *pool, bool with_users);
/* The loader's job has ended: it holds the copy from now on, until loader_let_go, and gets no other job. */
void loader_holds(struct loader *loader, struct ipc_copy *copy);
/* Ends the loader that holds this copy, and what it has. */
void loader_let_go(struct loader_pool *pool, const struct ipc_copy *copy);
/* The same because of an error: the copy ends as if the loader had died. */
void loader_fail_copy(struct loader_pool *pool, const struct ipc_copy *copy, const struct error *error);
/* The loader's job has ended, and the loader is about to exit. */
void loader_is_leaving(struct loader *loader);
/* The loader's connection has ended. */
void loader_lost(struct loader *loader);

/* ---- what gpuwmd does to it ---- */

/* Asks the loader to end its job, and kills the loader if it does not. A second call does nothing. */
void loader_cancel(struct loader *loader);
/* Ends the loader's job with this error and kills the loader. Does nothing if the loader has no job. */
void loader_fail(struct loader *loader, const struct error *error);
/* Replaces the loaders that stand by with new ones. */
void loader_pool_renew(struct loader_pool *pool);
/* Sets the loader's timer to the time in which its job must make progress (check_stall_ms, load_stall_ms). */
void loader_watch(struct loader *loader);
/* The same for all loaders, after the configuration has changed. Also sets anew how long contexts are kept. */
void loader_pool_watch(struct loader_pool *pool);
/* Hands the loader one use of the charge, which it drops when its process is gone. That may be never. */
void loader_keep(struct loader *loader, struct shared_charge *shared);
/* Hands a use of the charge to each loader that may still have this part of a version mapped. NULL is fine for both. */
void loader_pool_keep(struct loader_pool *pool, const struct version_id *version, uint32_t replica,
		      struct shared_charge *shared);
/* Returns the loader that runs this job, or NULL. */
struct loader *loader_of(const struct loader_pool *pool, const void *job);

/* ---- GPUs that are lost, and that come back: losses.c ----
 * gpuwmd calls no driver: its loaders find out (loader/devices/loss.h) and report it. */

/* Call when a loader has found that the device is lost. Taints all versions that have a part there, fails all publishes that
 * make one there, ends all regions there, and sends an event. The device takes no loads and publishes until losses_end. Jobs on the device end
 * before the loop sleeps. Does nothing if the loss is known. */
void losses_note(struct work *work, struct device *device, const struct error *why);
/* Call when a process that began after the loss has written and read memory of the device: the device takes loads and
 * publishes again. Versions that were lost with it stay tainted. */
void losses_end(struct work *work, struct device *device);
/* Ends jobs on lost devices, and replaces loaders that began before a device came back. Call it before the loop sleeps. */
void losses_settle(struct work *work);

#endif
