/* Scratch memory of a region has one holder at a time. gpuwmd hands it on in the order of asking. The holder is in the saved state before
 * it learns that it is the holder, so that there are never two, whenever gpuwmd is killed. Those who wait are not in the state: after a
 * restart they ask again. */
#ifndef GPUWM_DAEMON_SCRATCH_H
#define GPUWM_DAEMON_SCRATCH_H

#include "../../ledger/region.h"
#include "../work.h"

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
