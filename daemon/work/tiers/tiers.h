/* Versions that move from tier to tier (proto/tier_kind.h). A loader moves each part, with a job `move` for it (job_move.c). When all
 * parts have arrived, the fd store gets their descriptors, and gpuwmd writes the state: from then on the version lies on the new
 * tier. Then gpuwmd removes the old segments from the store and closes them. If a step fails before the state is written, or if a
 * process is killed before, the version lies on its old tier unchanged.
 *
 * Budgets: before the first job begins, gpuwmd charges the memory on the new tier to the budget of its device (of `host` for demoted
 * parts). The old memory stays charged until it is closed. Owner: while the version moves from memory to memory, gpuwmd charges its
 * owner for the old memory only. Memory that is read from files is charged to the owner before the first job begins. */
#ifndef GPUWM_DAEMON_TIERS_H
#define GPUWM_DAEMON_TIERS_H

#include "../work.h"
#include "../../ledger/eviction.h"

/* For whom a version moves. */
struct tiers_who {
	uid_t uid;
	bool by_operator; /* an operator, or gpuwmd by the operator's policy: no quota counts */
	bool restores; /* gpuwmd itself, which brings back what was resident: no other version makes room for that */
};

/* Moves a ready version to a lower tier: from `device` to `host` or `files`, or from `host` to `files`. Returns 0 if the move has
 * begun (version->move), or if the version lies there already. The event `demoted` and the log give `reason`, of which they have the
 * first MOVE_REASON_BYTES bytes (moves.h). Fails, and changes nothing, with
 *   -EBUSY   It has leases or pins (the message names them), a load or another move shares its segments, it moves already, or the grace time after a
 *            restart is not over.
 *   -EINVAL  It is not ready, has no name, is cached or lies on a lower tier. Or `to` is `host`, and one of its parts belongs to the
 *            device `host`. Or `to` is `files`, and it has no description.
 *   -EBADMSG, -ENODEV  It is tainted.
 *   -ENOSPC  The memory does not fit the budget of `host`: the message has the figures.
 *   -EDQUOT  There are too many jobs, or the fd store has no room for the descriptors beside the old ones.
 *   -ESHUTDOWN  gpuwmd drains.
 *   -ENOMEM */
int tiers_demote(struct work *work, struct version *version, enum tier to, const struct tiers_who *who,
		 const char *reason, struct error *error);

/* Makes host copies of the parts of a version on its devices that have none. The version stays, and may be in use. A demotion to host
 * meanwhile becomes what the move does; one to files ends it, fails with -EBUSY, and may be tried again when room is given back. Fails as
 * tiers_demote does, except for leases, pins and the grace time. */
int tiers_copy(struct work *work, struct version *version, const struct tiers_who *who, struct error *error);

/* Moves a ready version back to its devices. Returns 0 if the move has begun, if a promotion goes on already, or if the version lies
 * on its devices. If the version is being demoted, cancels the demotion. If the devices have no room now, the move waits in these
 * cases: memory is being freed, jobs end whose contexts take memory, or the function of tiers_make_room returned 0. If a user's
 * attach begins the promotion, its bytes are charged to that user's quota until it ends, besides the owner's. Each user may have
 * PROMOTIONS_PER_UID_MAX such promotions. Fails, and changes nothing, with
 *   -EINVAL  It is not ready.
 *   -EBADMSG, -ENODEV  It is tainted, or a device is lost.
 *   -ENOSPC  The devices have no room.
 *   -EDQUOT  The quota of the user or of the owner is used up, there are too many jobs, or the fd store has no room.
 *   -ESHUTDOWN, -ENOMEM */
int tiers_promote(struct work *work, struct version *version, const struct tiers_who *who, const char *reason,
		  struct error *error);

/* Has a loader compare the files of description->source with the digests of the version, which needs no memory. Copies `description`. If the files
 * have every byte of the version, the version gets the description (version->description), and can be demoted to files. It stays
 * where it is, and may be in use. Fails as tiers_demote does, except for leases, pins and the grace time. */
int tiers_describe(struct work *work, struct version *version, const struct description *description,
		   const struct tiers_who *who, struct error *error);

/* Begins the promotion of a version that a session wants to lease, or finds the promotion that goes on. `promotion` is the number of
 * the promotion that the session has waited for, or 0. Sets *ret_promotion to the number of the promotion, or to 0 if another move of
 * the version has to end first. The end of the move wakes the sessions that wait with WAIT_READY. Fails as tiers_promote does, with
 * the error of the promotion that the session has waited for, and with -EDQUOT if the session's user has PROMOTIONS_PER_UID_MAX
 * promotions already. */
int tiers_attach(struct work *work, struct version *version, const struct tiers_who *who, uint64_t promotion,
		 uint64_t *ret_promotion, struct error *error);

/* Sets ret to the numbers of the jobs of the version's move. Returns how many there are: 0 if the version does not move, or if its move
 * waits for room. */
uint32_t tiers_jobs(const struct version *version, uint64_t ret[PARTS_PER_VERSION_MAX]);

/* What a promotion of a version would charge for each of its parts. */
struct tiers_needed {
	uint64_t bytes[PARTS_PER_VERSION_MAX];
};
/* Sets *ret for a version that lies on a lower tier, and does not move. Fails with -ENODEV if no loader has reported the host yet, and
 * with -ENOMEM. */
int tiers_needed(struct work *work, struct version *version, struct tiers_needed *ret, struct error *error);

/* A promotion, or a load, lacks room. */
struct tiers_need {
	const struct device *device;
	uint64_t bytes; /* besides the context of a loader */
	const struct version *version; /* the one to be promoted, which stays; NULL: a load needs the room */
	const struct loader *loader; /* needs the room, and has its context already; NULL: none */
	bool no_context; /* no loader works for it */
	struct tiers_who who;
};
/* Sets the function that is called each time a promotion finds no room. NULL, the value at start, means that nobody makes room. The
 * function makes room, or begins to. It returns 0 if room will come without another call: the promotion looks again when memory was
 * given back. Else it fails with -ENOSPC; the caller has set the error, and the function may add to its message. */
void tiers_make_room(struct work *work, tiers_room_fn *room);

/* Notes that a loader has handed over the new memory of its job's part, or that it has compared the files (the part has no segments).
 * Takes the segments over. After the last part, the fd store gets the descriptors: until it has them, job_is_storing returns true for
 * the job. Then the move ends, and sessions that wait with WAIT_STORED are woken. Fails with -EINVAL if the job's move has ended or
 * never was, with -EBADMSG if the segments don't fit the part, and with -ENOMEM; then the move fails too. */
int tiers_arrived(struct work *work, struct job *job, struct part *part, struct error *error);

/* Lets moves that wait for room look for it, and ends moves that failed. The loop calls it before it sleeps. */
void tiers_settle(struct work *work);

/* ---- evictions: evictions.c ----
 * Versions that gpuwmd demotes by itself, as the sections [model.N] of the configuration say: to make room (evict), because a model
 * has too many resident versions (max_resident), and because nobody uses them (idle). Each demotion has its reason in the event
 * `demoted` and in the log. Versions with leases or pins stay. */

/* Begins to demote as many versions as the device needs to have room. It is a tiers_room_fn. Also returns 0 if there will be room when
 * a version has been resident for min_resident. The caller waits with WAIT_ROOM, and then calls again. */
int evictions_make_room(struct work *work, const struct tiers_need *need, struct error *error);

/* Finds out what evictions_make_room would do once `before` has happened, and does nothing. Returns 0 and sets *ret, whose list is empty
 * if room would come by itself. Fails as evictions_make_room does. The caller frees ret->list, after errors too. */
int evictions_foresee(const struct work *work, const struct tiers_need *need,
		      const struct eviction_before *before, struct eviction_plan *ret, struct error *error);

/* The version's memory is damaged or gone: demotes it to its host copies. Returns false if not all of its parts have one, or if it can't move
 * because somebody has it mapped or pinned, for example. It is a work_heal_fn. */
bool evictions_heal(struct work *work, struct version *version, const char *reason);

/* Versions may leave their devices again after a restart (keeping_await_ms): looks again at what waited for that. Not within a request. */
void evictions_again(struct work *work);

/* Demotes the versions above max_resident that were resident for min_resident. The loop calls it before it sleeps, if versions have
 * become resident, have been so for min_resident, or have lost their last lease (LATER_RESIDENTS). */
void evictions_settle(struct work *work);

/* Makes the host copies that `host_copy = yes` asks for, one version at a time, while no other job or move goes on. A copy takes only room
 * that nobody has, and none of the part that host copies leave to others. The loop calls it before loaders get their turn (LATER_TURN). */
void host_copies_make(struct work *work);

/* Starts the timer that demotes versions which nobody uses (`idle`). Call it at start and when the configuration has changed; the timer
 * repeats by itself. */
void idle_arm(struct work *work);

#endif
