/* The inside of tiers*.c and job_move.c. Each file of this list calls only files that stand before it:
 *   moves.c       the list of moves
 *   moves_leave.c memory that a version does not have any more
 *   host_copies.c host copies of versions on their devices, and how they go
 *   tiers_share.c what a move shares with versions that lie where it goes
 *   tiers_room.c  what a move is charged with
 *   job_move.c    a job for each part
 *   tiers_end.c   how a move ends: the version has moved, or everything is as it was
 *   tiers_move.c  what happens in between
 *   tiers.c       who may move where */
#ifndef GPUWM_DAEMON_TIERS_INTERNAL_H
#define GPUWM_DAEMON_TIERS_INTERNAL_H

#include "moves.h"

/* ---- moves_leave.c ---- */

/* Gives back the charges for descriptors. If `stored` is true, some descriptors may still be in the store, and stay counted there. */
void moves_give_fds(struct tier_move *move, bool stored);
/* The charge of the part's memory in move->memory returns when the memory is closed and nobody may map it any more. */
void move_keep_charge(struct tier_move *move, uint32_t part);
/* Closes the memory in move->memory, and then frees the move, which is in no list. */
void move_close_parts(struct tier_move *move);
/* Does all of this with memory that left the version: takes it out of the fd store first. The state says already that it is gone. */
void move_leave(struct tier_move *move);

/* ---- tiers_share.c ---- */

/* Finds the segments that the move's version can share where it goes (relocated_find_twins). Fails with -ENOMEM. */
int tiers_share_find(struct tier_move *move, struct error *error);
/* From now on the versions that have them are not freed, and stay where they are, until tiers_share_end. */
void tiers_share_hold(struct tier_move *move);
/* Does nothing if the move holds none. */
void tiers_share_end(struct tier_move *move);
/* Checks that the segments are still sound, and still may be shared. Fails with -EAGAIN. */
int tiers_share_check(const struct tier_move *move, struct error *error);
/* Returns the move that holds segments of this version; NULL: none. The version must not leave its memory meanwhile. */
const struct tier_move *tiers_sharing(const struct work *work, const struct version *version);
/* Returns whether a promotion has to wait for the end of another move: it brings what this one can share, or holds segments of this
 * version. No two moves wait for each other: one that waits has and holds nothing. A move that nodes are to bring is awaited only while
 * they bring something. */
bool tiers_share_awaits(const struct tier_move *move);
/* Returns whether another move may still bring what a promotion can share, although nodes bring nothing. */
bool tiers_share_may_await(const struct tier_move *move);

/* ---- tiers_room.c ---- */

/* Decides which parts of the move have to move, and to which device. Sets *ret_bytes to the bytes of memory that will be made. Fails with -ENODEV if no
 * loader has reported the device `host` yet. */
int tiers_place(struct tier_move *move, uint64_t *ret_bytes, struct error *error);
/* Charges all that the move needs: memory, quotas, room in the fd store. Fails with -ENOSPC, -EDQUOT and -ENOMEM; then nothing is
 * charged. */
int tiers_charge(struct tier_move *move, struct error *error);
/* Gives back all that tiers_charge charged. No job of the move may have begun. */
void tiers_uncharge(struct tier_move *move);
/* Returns whether a promotion that failed with -ENOSPC has to wait for room. If not, adds the reason to the error. */
bool tiers_await_room(struct tier_move *move, struct error *error);

/* ---- job_move.c ---- */

/* Makes the jobs of the move, which get loaders in the loop's next turn. Fails with -EDQUOT and -ENOMEM; then no job is left. */
int tiers_make_jobs(struct tier_move *move, struct error *error);
/* The job goes on without its move. */
void job_move_forget(struct job *job);

/* ---- tiers_end.c ---- */

/* Moves the version, when all parts have arrived and are stored. The move is freed later, when the old memory is closed. Fails, and
 * changes nothing, if the version or its devices have changed so that it can't move any more. */
int tiers_commit(struct tier_move *move, struct error *error);
/* Ends a move that failed with move->error: closes the memory that has arrived, and frees the move. The version stays where it was. */
void tiers_give_up(struct tier_move *move);

/* ---- tiers_move.c ---- */

/* Begins a listed move: makes its jobs, or has it wait for room. After an error the caller calls tiers_give_up. */
int tiers_start(struct tier_move *move, struct error *error);
/* Ends a listed move that has begun, and for which no loader has anything to do. Returns true if it was one: it is gone then. */
bool tiers_settle_empty(struct tier_move *move);

#endif
