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
struct work;

/* In work/tiers/tiers.h. */
typedef int tiers_room_fn(struct work *work, const struct tiers_need *need, struct error *error);

struct work {
	uv_loop_t *loop; /* its data is this struct */
	const struct config *config;
	struct ledger *ledger;
	struct net *net;
	struct clients *clients;
	struct keeping *keeping; /* what a restart finds */

	struct freeing *freeing; /* versions that are to go */
	bool unfreed; /* freeing a version failed for lack of memory; gpuwmd tries again before the loop sleeps */
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
	bool cancels_due; /* loaders are told of jobs that were cancelled before the loop sleeps */
	bool report_due; /* a loader is asked for the devices anew before the loop sleeps */
	bool turn_due; /* gpuwmd gives loaders to jobs, and starts loaders, before the loop sleeps */
	bool copies_due; /* a copy has become ready, ended or idle, or a lease of one ended: copies_settle has work to do */
	bool losses_due; /* a device was lost or is back, so losses_settle has work to do */
	bool standbys_stale; /* the loaders that stand by began before a device came back */
	bool room_came; /* memory was given back: who waits for room looks before the loop sleeps */
	struct tier_move *moves; /* a list: versions on their way to another tier (work/tiers/tiers.h) */
	uint64_t promotions; /* how many have begun, which numbers them */
	tiers_room_fn *make_room; /* NULL: nobody makes room for promotions */
	struct restore restore; /* of what was resident before the start (work/tiers/restore.h) */
	bool restore_due; /* the next promotion of it may begin */
	bool residents_due; /* versions have become resident, or are not in use any more: evictions_settle has work to do */
	uv_timer_t idle_timer, recent_timer; /* work/tiers/evictions.c */
	bool moves_due; /* a move may go on, or end, before the loop sleeps */
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
/* An operator drains gpuwmd, or it ends: no new leases, publishes, loads. `why` is what those who wait are told. */
void work_begin_draining(struct work *work, const struct error *why);

#endif
