/* Versions that gpuwmd demotes by itself, as the sections [model.N] of the configuration say: to make room (evict), because a model
 * has too many resident versions (max_resident), and because nobody uses them (idle). Each demotion has its reason in the event
 * `demoted` and in the log. Versions with leases or pins stay. */
#ifndef GPUWM_DAEMON_EVICTIONS_H
#define GPUWM_DAEMON_EVICTIONS_H

#include "tiers.h"
#include "../../ledger/eviction.h"

/* Begins to demote as many versions as the device needs to have room. It is a tiers_room_fn. Also returns 0 if there will be room when
 * a version has been resident for min_resident. The caller waits with WAIT_ROOM, and then calls again. */
int evictions_make_room(struct work *work, const struct tiers_need *need, struct error *error);

/* Finds out what evictions_make_room would do once `before` has happened, and does nothing. Returns 0 and sets *ret, whose list is empty
 * if room would come by itself. Fails as evictions_make_room does. The caller frees ret->list, after errors too. */
int evictions_foresee(const struct work *work, const struct tiers_need *need,
		      const struct eviction_before *before, struct eviction_plan *ret, struct error *error);

/* Demotes the versions above max_resident that were resident for min_resident. The loop calls it before it sleeps, if versions have
 * become resident, have been so for min_resident, or have lost their last lease (work->residents_due). */
void evictions_settle(struct work *work);

/* Starts the timer that demotes versions which nobody uses (`idle`). Call it at start and when the configuration has changed; the timer
 * repeats by itself. */
void idle_arm(struct work *work);

#endif
