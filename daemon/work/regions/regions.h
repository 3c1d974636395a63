/* Regions: how they come to be and end, who uses them, and what becomes of it when a process exits. It lies between the ledger
 * (ledger/region.h) and the methods.
 *
 * What survives gpuwmd comes in this order. A user comes: its pidfd is stored, the control memory names it, the state is saved, the
 * request is answered. It goes: the control memory forgets it, the state is saved, its pidfd leaves the store. A region ends: the state
 * is saved, the control memory says so, its memory leaves the store and is closed. When the last user of an ended region has gone, the
 * state is saved without the region, and the control memory leaves the store. After a restart only the state says who uses a region, and
 * whether it has ended: every user may write the control memory. */
#ifndef GPUWM_DAEMON_REGIONS_H
#define GPUWM_DAEMON_REGIONS_H

#include "../../ledger/region.h"
#include "../work.h"

/* ---- a user comes: regions_make.c ---- */

/* Makes a region with its first user, and a job for its memory. `creator` is as for region_user_add; its pidfd moves in. The caller then
 * makes a waiter of WAIT_REGION with the id of the use, which is woken when the user is here, or refused. Without the waiter the region
 * ends. Fails with -EEXIST, -ENOSPC, -EDQUOT and -ENOMEM; then the pidfd is still the caller's. */
int regions_make(struct work *work, const struct region_wish *wish, const struct region_user *creator,
		 struct region_user **ret_user, struct error *error);
/* A loader brings the region's memory, which moves in. The thread pool makes the control memory then. */
void regions_take_memory(struct work *work, struct region *region, int memory_fd);
/* Returns whether the job makes so much memory for the region with this id. */
bool regions_job_makes(const struct job *job, const struct version_id *region, uint64_t bytes);
/* Adds a user to a region that is ready, like regions_make. After the caller has made the waiter, it calls regions_welcome. */
int regions_use(struct work *work, struct region *region, const struct region_user *like,
		struct region_user **ret_user, struct error *error);
void regions_welcome(struct work *work, struct region_user *user);
/* A session has ended, and its waiters are gone: ends regions that are made for nobody. */
void regions_abandon(struct work *work);

/* ---- a user goes, a region ends: regions.c ---- */

/* The user gives its slot back. If the region ends with it, it ends. */
void regions_leave(struct work *work, struct region_user *user);
/* Its process has exited. */
void regions_user_died(struct work *work, struct region_user *user);
/* The user, who was never here, does not come, for this reason, which its request is answered with. */
void regions_turn_away(struct work *work, struct region_user *user, const struct error *why);
/* Ends a region: who waits for it is refused, its users see it. The pointer may be dead afterwards. */
void regions_end(struct work *work, struct region *region, enum control_end end, unsigned by,
		 const struct error *why);
/* Ends all regions, or those on one device. */
void regions_end_all(struct work *work, const struct device *device, const struct error *why);
/* Ends the region if its control memory is damaged. Fails with -EOWNERDEAD or -ESHUTDOWN if the region has ended, now or before; the
 * message says why. */
int regions_check(struct work *work, struct region *region, struct error *error);
/* Takes the memory of a region that has ended out of the store, and then closes it. If the region has no users, the control memory
 * leaves the store too. */
void regions_unstore(struct work *work, struct region *region);
/* Frees a region that has ended, if nobody uses it and nothing works on it. */
void regions_settle(struct work *work, struct region *region);
/* Returns the request that waits for this use, or NULL. */
struct waiter *regions_waiter(const struct work *work, const struct version_id *use);
/* The event about a region. */
void regions_tell(struct work *work, const struct message_form *form, struct region *region,
		  const struct region_event *event);

/* ---- gpuwmd begins and ends: regions_begin.c ---- */

/* Goes on with the regions that keeping_begin found: maps their control memory and watches their users. Fails with -ENOMEM and other
 * codes if the kernel refuses that several times. Then nothing has changed in the fd store and in the control memory. */
int regions_begin(struct work *work, struct error *error);
/* Closes the loop's handles. */
void regions_close(struct work *work);

/* ---- watches: regions_watch.c ----
 * They watch the pidfds of the processes that use regions. */

/* Begins with no watches, and ends when all of them have ended: makes and closes a handle of the loop. */
void region_watches_init(struct work *work);
void region_watches_end(struct work *work);

/* Called on the loop, once: the process has exited. If many processes exit at once, the calls spread over turns of the loop. */
typedef void region_gone_fn(struct work *work, struct region_user *user);
/* Watches the user's pidfd. Fails with -EPERM if the descriptor is no pidfd, and with -ENOMEM. */
int region_watch(struct work *work, struct region_user *user, region_gone_fn *gone, struct error *error);
/* Ends that, also if the process has exited and its call waits. The pidfd may be closed afterwards. A second call does nothing. */
void region_unwatch(struct region_user *user);

/* ---- scratch memory: scratch.c ----
 * Scratch memory of a region has one holder at a time. gpuwmd hands it on in the order of asking. The holder is in the saved state before
 * it learns that it is the holder, so that there are never two, whenever gpuwmd is killed. Those who wait are not in the state: after a
 * restart they ask again. */

/* Answers the request if the user has the memory, or if nobody has it. Else the request waits for wait_ms (-1: for ever). A request of
 * this user that waits already is refused. Fails with -ETIMEDOUT if wait_ms is 0, and with -EDQUOT and -ENOMEM. */
int scratch_ask(struct work *work, const struct request *request, struct region_user *user, int64_t wait_ms,
		struct error *error);
/* The user has given the memory back: saves that, and hands the memory on. A request of this user that waits is refused. */
void scratch_release(struct work *work, struct region_user *user, bool untouched);
/* The user goes. The caller then saves the state, and calls scratch_hand_on. */
void scratch_user_left(struct work *work, struct region_user *user);
/* If nobody has the memory of the region, gives it to the user that has asked first. */
void scratch_hand_on(struct work *work, struct region *region);
/* The region has ended: refuses those who wait for its memory. */
void scratch_refuse_all(struct work *work, struct region *region);
/* Returns how many users wait for its memory. */
unsigned scratch_waiting(const struct work *work, const struct region *region);

#endif
