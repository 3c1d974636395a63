/* What happens to versions, with all that follows: descriptors, budgets, events, and sessions that wait. It lies between the
 * ledger, which knows no loop, and the methods. */
#ifndef GPUWM_DAEMON_VERSIONS_H
#define GPUWM_DAEMON_VERSIONS_H

#include "../work.h"

/* Makes the version of a publish ready if all of its parts are there. First the fd store gets the descriptors, if there is one;
 * until it has them, version->storing is true, and only the store can fail the publish. Then the version becomes ready, its
 * alias moves, and the publish ends (its pointer is invalid then). Wakes sessions that wait with WAIT_STORED or WAIT_CHECKED.
 * Does nothing if parts are missing, or while they are being stored. If the alias could not be moved, the error of the version
 * and of its jobs says why. Returns a negative code if the version has failed. */
int versions_complete(struct work *work, struct publish *publish, struct error *error);

/* Fails a publish, which is not being stored, with all of its parts. Its pointer is invalid then. dead: the session of a publisher
 * whose process may still hold memory; NULL: there is none. */
void versions_fail(struct work *work, struct publish *publish, const struct error *reason,
		   const struct session *dead);

/* This publisher, a session or a job, has ended. Fails each publish of which it has a part that is not committed, and each publish
 * of which it was the last publisher while a rank has no part. dead: as above. */
void versions_fail_of(struct work *work, const void *publisher, const struct error *reason,
		      const struct session *dead);

/* Each of the functions below changes the state that survives gpuwmd in one step: after a kill, all of the change is there, or
 * none. */
struct versions_swap {
	const char *model, *alias;
	struct version *to; /* NULL: the alias is removed */
	const struct version_id *expect; /* may be NULL */
	bool retire_old;
};
/* Moves the alias. Sets ret_kept if the old version could not be retired; the alias has moved nevertheless, and the
 * function returns 0. ret_kept->code is 0 otherwise. */
int versions_swap(struct work *work, const struct versions_swap *swap, struct swap_result *ret,
		  struct error *ret_kept, struct error *error);
int versions_pin(struct work *work, struct version *version, const char *pin, struct error *error);
int versions_unpin(struct work *work, struct version *version, const char *pin, struct error *error);
/* Retires a version: it gives no new leases, and gpuwmd frees it when nothing holds it, after this call at the earliest. */
int versions_retire(struct work *work, struct version *version, struct error *error);
/* The same, and revokes the leases that are left after after_ms, so that the version is freed then (versions_forced.c).
 * A second call before that time counts after_ms from its own time. Fails with
 * -EBUSY if the version has pins. */
int versions_retire_by_force(struct work *work, struct version *version, uint64_t after_ms,
			     struct error *error);
/* Call it at start: sets the timer for versions that an earlier gpuwmd was to free by force. */
void versions_force_begin(struct work *work);

/* Call it at start: sets the timer for cached versions that an earlier gpuwmd was to retire (versions_cached.c). */
void versions_cache_begin(struct work *work);

/* Forgets a failed version, so that `list` no longer has it, and sends an event. Fails with -EINVAL if the version
 * has not failed. */
int versions_remove(struct work *work, struct version *version, struct error *error);
/* Call at start: from then on, gpuwmd forgets each failed version after failed_keep_s of the configuration, and sends an
 * event. */
void versions_failed_begin(struct work *work);
/* Sets the timer for the oldest failed version. Call it when another one has failed, or failed_keep_s has changed. */
void versions_failed_arm(struct work *work);

/* A loader has found that the memory of a part is not what was checked. Taints the version, which gives no new leases then. */
void versions_taint(struct work *work, struct version *version, const struct replica *replica,
		    const struct error *found);

/* The version has moved from tier to tier: sends the event. */
void versions_tell_moved(struct work *work, const struct version *version, enum tier from, enum tier to,
			 const char *reason);

/* In versions_lost.c. Taints all versions with a replica on the device, which is lost (-ENODEV). */
void versions_lose(struct work *work, struct device *device);
/* Fails all publishes that have a part on a lost device. A version that is on its way into the fd store becomes ready
 * first, and is tainted then. */
void versions_fail_lost(struct work *work);
/* Taints one version that has become ready after its device was lost. */
void versions_lose_new(struct work *work, struct version *version);
/* Frees the versions that can't be used without what was lost with the device: removes the aliases that name them and
 * revokes their leases. Frees pinned ones when their last pin goes. Leaves versions whose ranks all have a replica on
 * another device. */
void versions_drain_lost(struct work *work, const struct device *device);
/* Returns whether memory of the version lies on the device. */
bool version_is_on(const struct version *version, const struct device *device);

/* Frees the version if nothing holds it any more. Call it after each lease that has ended. */
void versions_free_unused(struct work *work, struct version *version);
/* The same without saving the state, for a caller that changes more and saves then. */
void versions_mark_unused(struct work *work, struct version *version);
/* Returns whether a version of the model is being freed or is about to be: what it is charged with returns soon. */
bool versions_are_being_freed(const struct work *work, const char *model);
/* Adds up what the user's versions that are being freed, or will be freed when the grace time is over, give back. data: the work. */
void versions_coming(void *data, uid_t uid, struct quota_coming *ret);
/* Frees all versions that nothing holds, because the grace time is over. */
void versions_free_all_unused(struct work *work);

/* Tries again to free what could not be freed for lack of memory. */
void versions_free_again(struct work *work);
/* Call it before the loop sleeps: takes versions that are to be freed out of the store, and closes their descriptors. It comes so
 * late because a request must find its versions until it is answered. */
void versions_settle(struct work *work);
/* A step of work_settle: the time of companions is over whose version was freed. */
void companions_settle(struct work *work);

/* For a drain: removes all aliases, retires all versions, and frees those that nothing holds. */
void versions_retire_all(struct work *work);

#endif
