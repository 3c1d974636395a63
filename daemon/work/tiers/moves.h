/* The moves of versions that go on (tiers.h), and the list of them. */
#ifndef GPUWM_DAEMON_MOVES_H
#define GPUWM_DAEMON_MOVES_H

#include "../../ledger/relocation.h"
#include "departures.h"
#include "tiers.h"

/* Of the text that says why a version moves. */
#define MOVE_REASON_BYTES 200

enum move_state {
	MOVE_WAITS, /* for room, or for another move: it has no jobs yet, and nothing is charged */
	MOVE_COPIES, /* its jobs run, or have ended */
	MOVE_STORES, /* all parts have arrived, and the fd store gets their descriptors: only the store can fail the move now */
	MOVE_UNSTORES, /* it has failed, and the new descriptors are being removed from the fd store */
	MOVE_LEAVES, /* the version has moved, and its old memory is being closed */
};

/* Of one part. */
struct move_part {
	struct job *job; /* NULL: none, or it has ended */
	bool arrived; /* a loader has handed the new memory over, or has compared the files */
	struct tier_move *move;
	struct device
		*leaves; /* the GPU whose free bytes are to grow when it is closed (departures.h); NULL: none */
	uint64_t bytes; /* by as much */
};

struct tier_move {
	struct work *work;
	struct version *version; /* the move counts as one of its readers; not valid in MOVE_LEAVES */
	char name[2 * NAME_BYTES_MAX + 2]; /* model@tag */
	enum tier from, to;
	struct description *describes; /* not NULL: the move only compares these files with the memory */
	bool copies; /* a demotion to host whose version stays: the new memory becomes its host copy */
	struct tiers_who who;
	bool by_attach; /* a promotion that a user's attach began */
	char reason[MOVE_REASON_BYTES + 1];
	enum move_state state;
	struct error error; /* why the move failed; code 0: it has not failed */
	struct error
		*failure; /* malloced: room for a copy of `error`, for sessions that wait for the promotion */
	struct quota_charge user; /* the bytes, if a user's attach began the promotion */
	uint64_t fds; /* counted in the registry: descriptors of the fd store besides those of the version */
	uint64_t owner_fds; /* descriptors that the owner was charged with */
	struct store_batch
		*removal; /* allocated: the descriptors to remove from the store when the version has moved */
	bool not_removed; /* the service manager did not confirm that descriptors left the store */
	uint32_t left; /* in MOVE_LEAVES: parts that are being closed */
	struct relocated *memory; /* one for each part of the version */
	departures_then_fn *then; /* while departures_await has it */
	struct tier_move *next;
	uint32_t part_count;
	struct move_part parts[];
};

/* Makes a move, without listing or beginning it. If `describes` is not NULL, copies it: the move then only compares files. Returns NULL
 * if there is no memory. */
struct tier_move *move_new(struct work *work, struct version *version, enum tier to,
			   const struct description *describes);
/* Lists the move, and sets version->move to it. */
void move_list(struct tier_move *move);
/* Takes the move out of the list, and sets version->move to NULL. */
void move_unlist(struct tier_move *move);
/* Gives back the move's charges, and frees it. The move must not be listed. Closes no descriptors. Returns NULL. */
struct tier_move *move_free(struct tier_move *move);
/* Closes the memory that has arrived, and frees all moves. gpuwmd calls it when it ends. */
void moves_clear(struct work *work);

/* Returns whether the move needs a job for this part: the part moves, and not onto its host copy, or the move compares files. */
bool move_has_job_for(const struct tier_move *move, uint32_t part);
/* Returns how many promotions go on that attaches of this user began. */
unsigned moves_by_attach(const struct work *work, uid_t uid);
/* Returns how many bytes of the device the moves have been granted. */
uint64_t moves_held(const struct work *work, const struct device *device);

/* Returns whether a promotion waits for room on the device; NULL: on any. */
bool moves_await_room(const struct work *work, const struct device *device);

/* Ends the version's move for the reason `why`: cancels its jobs, and tiers_settle does the rest. Does nothing if the version does not
 * move, or if its move can't be ended any more. */
void moves_stop(struct work *work, const struct version *version, const struct error *why);
/* Ends the version's move as moves_stop does if it is a demotion, because `who` needs the version on its devices. */
void moves_stop_demotion(struct work *work, const struct version *version, const char *who);

/* Ends the move that makes a host copy, if there is one: others need its loader. */
void moves_give_way(struct work *work);

/* ---- the job of a part: job_move.c ---- */

/* Returns the move that the job belongs to. NULL: none, or it has ended. */
struct tier_move *job_move_of(const struct job *job);
/* Returns whether the job takes memory from a version, so that others may get it. */
bool job_makes_room(const struct job *job);
/* Returns whether the job makes a host copy in the background. */
bool job_makes_copy(const struct job *job);

#endif
