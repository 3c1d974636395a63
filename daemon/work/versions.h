/* A version's life with all that follows from it: descriptors and budgets,
 * events, and those who wait. Between the ledger, which knows no loop, and the methods. */
#ifndef GPUWM_DAEMON_VERSIONS_H
#define GPUWM_DAEMON_VERSIONS_H

#include "work.h"

/* The publish's parts are all here: they are stored, where there is a store, and then the version
 * is ready, its alias moves, the publish ends (its pointer is dead). Until then version->storing holds,
 * nothing can fail the publish but the store, and who waits with WAIT_STORED or WAIT_CHECKED is woken. Without all
 * parts, or while they are being stored: nothing. Why an alias was not moved is then the ready version's error,
 * and that of its jobs. Negative: the version failed. */
int versions_complete(struct work *work, struct publish *publish, struct error *error);

/* The publish (which is not being stored) fails, with all its parts; its pointer is dead. dead: the session
 * of a publisher whose process may still hold memory; NULL: none. */
void versions_fail(struct work *work, struct publish *publish, const struct error *reason,
		   const struct session *dead);

/* This publisher (a session or a job) has ended: every publish that has an uncommitted part of it fails, or
 * that it was the last to know of while a rank is not begun. dead: as above. */
void versions_fail_of(struct work *work, const void *publisher, const struct error *reason,
		      const struct session *dead);

/* Each is one change of what survives: all of it is there after a kill, or none. */
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
/* No new leases; freed when unused, after this call. */
int versions_retire(struct work *work, struct version *version, struct error *error);
/* The same, and revokes the leases that are left after after_ms, so that the version is freed then (versions_forced.c).
 * A second call before that time counts after_ms from its own time. by: the user who asked, for the log. -EBUSY: the
 * version has pins. */
int versions_retire_by_force(struct work *work, struct version *version, uint64_t after_ms, uid_t by,
			     struct error *error);
/* At start: the times of versions that were to be freed by force before the restart go on. */
void versions_force_begin(struct work *work);

/* Forgets a failed version, so that `list` no longer has it, and sends an event. -EINVAL: the version did not fail; the
 * error names the remedy. */
int versions_remove(struct work *work, struct version *version, struct error *error);
/* Call at start: from then on, gpuwmd forgets each failed version after failed_keep_s of the configuration, and sends an
 * event. */
void versions_failed_begin(struct work *work);
/* Sets the timer for the oldest failed version. Call it when another one has failed, or failed_keep_s has changed. */
void versions_failed_arm(struct work *work);

/* A loader found that the memory of a replica is not what was checked: no new leases. */
void versions_taint(struct work *work, struct version *version, const struct replica *replica,
		    const struct error *found);

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
/* Returns whether the version has a replica on the device. */
bool version_is_on(const struct version *version, const struct device *device);

/* Frees the version if nothing holds it any more: called after each lease that went. */
void versions_free_unused(struct work *work, struct version *version);
/* The same, for who changes more: the caller saves the state afterwards. */
void versions_mark_unused(struct work *work, struct version *version);
/* The same for all: the grace time is over. */
void versions_free_all_unused(struct work *work);

/* Before the loop sleeps: what was found unused leaves the store and is closed. Not
 * earlier, so that a request's versions are there until it is answered. */
void versions_settle(struct work *work);

/* drain: no aliases, everything retired, what is unused freed. */
void versions_retire_all(struct work *work);

#endif
