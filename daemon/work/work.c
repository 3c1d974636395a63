#include "work.h"

#include "versions/claims.h"
#include "jobs/copies.h"
#include "tiers/departures.h"
#include "tiers/host_copies.h"
#include "tiers/tiers.h"
#include "jobs/job.h"
#include "loaders/loader.h"
#include "versions/publishers.h"
#include "tiers/moves.h"
#include "regions/regions.h"
#include "versions/leases.h"
#include "versions/unparks.h"
#include "jobs/verify.h"
#include "versions/versions.h"
#include "../../service/log.h"
#include "../clients/clients.h"
#include "../restart/keeping.h"

#include <errno.h>

static const struct job_actions *const job_actions[JOB_KINDS] = {
	[JOB_LOAD] = &job_load,     [JOB_CHECK] = &job_check, [JOB_VERIFY] = &job_verify,
	[JOB_REGION] = &job_region, [JOB_MOVE] = &job_move,   [JOB_HOLD] = &job_hold};

int work_init(struct work *work)
{
	uv_timer_t *const timers[] = {&work->claims_timer,     &work->force_timer,      &work->failed_timer,
				      &work->cache_timer,      &work->idle_timer,       &work->recent_timer,
				      &work->copies_timer,     &work->unparks_timer,    &work->moves_timer,
				      &work->departures_timer, &work->host_copies_timer};

	job_table_init(&work->jobs, job_actions);
	for (size_t i = 0; i < sizeof(timers) / sizeof(*timers); i++) {
		uv_timer_init(work->loop, timers[i]);
		timers[i]->data = work;
	}
	uv_idle_init(work->loop, &work->again);
	region_watches_init(work);
	work->loaders = loader_pool_new(work);
	work->scrub = scrub_new(work);
	work->revoked = revoked_table_new(work);
	work->silence = silence_new(work);
	return work->loaders && work->scrub && work->revoked && work->silence ? 0 : -ENOMEM;
}

void work_close(struct work *work)
{
	mourning_end(work);
	departures_clear(work);
	regions_close(work);
	region_watches_end(work);
	work->revoked = revoked_table_free(work->revoked);
	work->loaders = loader_pool_free(work->loaders);
	work->scrub = scrub_free(work->scrub);
	work->silence = silence_free(work->silence);
	uv_close((uv_handle_t *)&work->claims_timer, NULL);
	uv_close((uv_handle_t *)&work->force_timer, NULL);
	uv_close((uv_handle_t *)&work->failed_timer, NULL);
	uv_close((uv_handle_t *)&work->cache_timer, NULL);
	uv_close((uv_handle_t *)&work->idle_timer, NULL);
	uv_close((uv_handle_t *)&work->recent_timer, NULL);
	uv_close((uv_handle_t *)&work->copies_timer, NULL);
	uv_close((uv_handle_t *)&work->unparks_timer, NULL);
	uv_close((uv_handle_t *)&work->departures_timer, NULL);
	uv_close((uv_handle_t *)&work->moves_timer, NULL);
	uv_close((uv_handle_t *)&work->host_copies_timer, NULL);
	uv_close((uv_handle_t *)&work->again, NULL);
}

void work_clear(struct work *work)
{
	job_table_clear(&work->jobs);
	moves_clear(work);
}

/* ---- before the loop sleeps ---- */

static void on_again(uv_idle_t *again)
{
	uv_idle_stop(again);
}

/* First what ends, then what is given back by that, then what takes it. losses_settle ends loaders' sessions, and every session that
 * ended ends leases, jobs and publishes; copies end before memory of their versions is closed; all of that makes room, for which moves
 * and jobs wait; the loaders' turn is last, when all has been said about jobs. A step may mark what stands above it: a job that ends in
 * the turn ends its move, an answer that can't be sent ends its session. For that the loop turns once more before it sleeps. */
void work_settle(struct work *work)
{
	losses_settle(work);
	net_settle(work->net);
	versions_free_again(work);
	copies_settle(work);
	versions_settle(work);
	companions_settle(work);
	if (work_is_due(work, LATER_ROOM)) {
		work_done(work, LATER_ROOM);
		waiters_wake(work->clients, WAIT_ROOM, NULL);
		work_later(work, LATER_UNPARKS);
		work_later(work, LATER_MOVES);
		work_later(work, LATER_TURN); /* a context may be kept there */
	}
	unparks_settle(work);
	host_copies_settle(work);
	evictions_settle(work);
	restore_settle(work);
	tiers_settle(work);
	/* The pool may be gone: descriptors are still being closed then. */
	if (work_is_due(work, LATER_CANCELS))
		loader_pool_cancel(work->loaders);
	if (work_is_due(work, LATER_REPORT))
		loader_pool_report(work->loaders);
	work_done(work, LATER_CANCELS);
	work_done(work, LATER_REPORT);
	host_copies_make(work);
	if (work_is_due(work, LATER_TURN)) {
		loader_pool_turn(work->loaders);
		work_done(work, LATER_TURN); /* what the turn itself marks needs no turn of its own */
	}
	audiences_tell(work->clients);
	claims_settle(work);
	keeping_settle_descriptions(work->keeping);
	if (!work->net->stopping && (work->net->ended_sessions || work->freeing ||
				     work_is_due(work, LATER_COPIES) || work_is_due(work, LATER_ROOM) ||
				     work_is_due(work, LATER_UNPARKS) || work_is_due(work, LATER_MOVES)))
		uv_idle_start(&work->again, on_again);
}

/* ---- draining ---- */

void work_begin_draining(struct work *work, const struct error *why)
{
	struct publish *publish, *next;

	if (work->draining)
		return;
	work->draining = true;
	log_info("%s: no new leases, publishes or loads", why->message);
	event_emit(work->ledger->events, &event_draining, NULL, NULL);
	waiters_refuse(work->clients, WAIT_READY, why);
	waiters_refuse(work->clients, WAIT_CLAIM, why);
	waiters_refuse(work->clients, WAIT_REGION, why);
	regions_abandon(work);
	for (publish = publish_next(work->ledger->publishes, NULL); publish; publish = next) {
		next = publish_next(work->ledger->publishes, publish);
		if (!publish->version->storing) /* else it gets into the fd store, and is retired after that */
			versions_fail(work, publish, why, NULL);
	}
	for (struct job *job = work->jobs.first; job; job = job->next)
		job_cancel(work, job, why);
	work_later(work, LATER_TURN); /* no context is kept any more */
}
