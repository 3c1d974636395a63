/* What goes on beside the ledger: jobs and the loaders that do them, versions that become ready and go, publishers and claims.
 * All of it runs on the loop's thread, and in other processes. */
#ifndef GPUWM_DAEMON_WORK_H
#define GPUWM_DAEMON_WORK_H

#include "jobs/job.h"
#include "../clients/clients.h"
#include "../config/config.h"
#include "../ledger/ledger.h"
#include "../net/net.h"
#include "tiers/restore.h"

struct freeing;
struct keeping;
struct loader_pool;
struct mourning;
struct region_watch;
struct revoked_table;
struct scrub;
struct silence;
struct tier_move;
struct tiers_need;
struct unpark;
struct work;

/* In work/tiers/tiers.h. */
typedef int tiers_room_fn(struct work *work, const struct tiers_need *need, struct error *error);

/* What work_settle does later, in this order. docs/architecture.md has a table of who marks what. */
enum work_later {
	LATER_LOSSES, /* a device was lost, or is back */
	LATER_FREE_AGAIN, /* there was no memory to free a version */
	LATER_COMPANIONS, /* a version was freed: its companions end */
	LATER_COPIES, /* a copy has become ready, ended or idle, or a lease of one ended, or its version is being freed */
	LATER_HOST_COPIES, /* a host copy may be one that should go: the rules, its version's tier or a segment have changed */
	LATER_ROOM, /* memory was given back: who waits for room looks */
	LATER_UNPARKS, /* leases that wait to be awake may get what they wait for, or have waited long enough */
	LATER_RESIDENTS, /* versions have become resident, or are not in use any more */
	LATER_RESTORE, /* the next promotion of what was resident before the start may begin */
	LATER_MOVES, /* a move may go on, or end */
	LATER_CANCELS, /* loaders are told of jobs that were cancelled */
	LATER_REPORT, /* a loader is asked for the devices anew */
	LATER_TURN, /* gpuwmd gives loaders to jobs, and starts loaders */
	LATERS
};

/* The memory of a version on its devices is damaged or gone: its host copies take its place. Returns false if it has none, or can't move. */
typedef bool work_heal_fn(struct work *work, struct version *version, const char *reason);

struct work {
	uv_loop_t *loop; /* its data is this struct */
	const struct config *config;
	struct ledger *ledger;
	struct net *net;
	struct clients *clients;
	struct keeping *keeping; /* what a restart finds */

	struct freeing *freeing; /* versions that are to go */
	struct job_table jobs;
	struct loader_pool *loaders;
	struct scrub *scrub;
	struct silence *silence; /* of publishers */
	struct mourning *mourning; /* dead publishers whose processes are not gone */
	struct revoked_table *revoked; /* leases that were revoked, as far as they may still be mapped */
	struct region_watch *deaths,
		**deaths_end; /* of users of regions, whom their regions have to be told of */
	uv_idle_t deaths_idle; /* it runs while there are deaths */
	uv_timer_t claims_timer, force_timer, failed_timer, cache_timer, copies_timer;
	uint64_t claims_until_ms; /* steady: the end of the grace time of claims; 0: it is over, or never was */
	uint64_t claims_saved; /* claim_changes of what was saved last */
	bool due[LATERS]; /* what work_later marked */
	uv_idle_t
		again; /* while it runs, the loop does not sleep: work_settle has left something for its next turn */
	bool standbys_stale; /* the loaders that stand by began before a device came back */
	struct tier_move *moves; /* a list: versions on their way to another tier (work/tiers/tiers.h) */
	struct unpark *
		unparks; /* leases that wait to be awake, in the order in which they asked (work/versions/unparks.h) */
	uint64_t unpark_count;
	struct departure *departures; /* a list: what leaves GPUs (work/tiers/departures.h) */
	struct tier_move
		*departing; /* a list: moves whose memory is not closed before it is known what is free */
	uint64_t departing_until_ms; /* steady: when it is closed all the same */
	uint64_t promotions; /* how many have begun, which numbers them */
	tiers_room_fn *make_room; /* NULL: nobody makes room for promotions */
	work_heal_fn *heal; /* NULL: nothing heals */
	struct restore restore; /* of what was resident before the start (work/tiers/restore.h) */
	uv_timer_t idle_timer, recent_timer; /* work/tiers/evictions.c */
	uv_timer_t unparks_timer, departures_timer;
	uv_timer_t host_copies_timer; /* a host copy that could not be made is tried again */
	uv_timer_t
		moves_timer; /* a move that others wait for may have become silent (work/tiers/tiers_share.c) */
	bool draining; /* no new leases, publishes, loads */
	bool drained; /* an operator let everything go: what still becomes ready is retired */
};

/* Makes its parts. The caller has set the members up to `keeping`. -ENOMEM: work_close and work_clear are called all the
 * same. */
int work_init(struct work *work);
/* Closes the loop's handles, once all sessions but loaders' have gone. */
void work_close(struct work *work);
/* Frees the rest, after the loop. */
void work_clear(struct work *work);

/* Before the loop sleeps: does what was put off until now, says goodbye to sessions that ended, wakes subscribers. */
void work_settle(struct work *work);
/* Puts something off until then. A call can end jobs, leases or versions that its own callers still go through; a mark can't. */
static inline void work_later(struct work *work, enum work_later what)
{
	work->due[what] = true;
}
/* For those who settle it. */
static inline bool work_is_due(const struct work *work, enum work_later what)
{
	return work->due[what];
}
static inline void work_done(struct work *work, enum work_later what)
{
	work->due[what] = false;
}
/* An operator drains gpuwmd, or it ends: no new leases, publishes, loads. `why` is what those who wait are told. */
void work_begin_draining(struct work *work, const struct error *why);

#endif
