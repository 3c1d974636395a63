#include "../../../base/clock.h"
#include "loader_internal.h"
#include "../jobs/copies.h"
#include "../jobs/job.h"
#include "../tiers/moves.h"
#include "../tiers/room.h"
#include "../jobs/verify.h"
#include "../../config/roots.h"
#include "../../net/session.h"

#include <stdio.h>
#include <stdlib.h>

/* Anybody may ask for the status, and a report asks the driver for every device. */
#define REPORT_OLD_MS 1000

/* ---- its life ---- */

struct loader_pool *loader_pool_new(struct work *work)
{
	struct loader_pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return NULL;
	pool->retry = malloc(sizeof(*pool->retry));
	pool->idle = malloc(sizeof(*pool->idle));
	pool->warm = malloc(sizeof(*pool->warm));
	if (!pool->retry || !pool->idle || !pool->warm) {
		free(pool->retry);
		free(pool->idle);
		free(pool->warm);
		free(pool);
		return NULL;
	}
	pool->work = work;
	pool->retry->data = pool->idle->data = pool->warm->data = pool;
	uv_timer_init(work->loop, pool->retry);
	uv_timer_init(work->loop, pool->idle);
	uv_timer_init(work->loop, pool->warm);
	return pool;
}

static void on_timer_closed(uv_handle_t *handle)
{
	free(handle);
}

struct loader_pool *loader_pool_free(struct loader_pool *pool)
{
	if (!pool)
		return NULL;
	while (pool->first)
		loader_discard(pool->first);
	uv_close((uv_handle_t *)pool->retry, on_timer_closed);
	uv_close((uv_handle_t *)pool->idle, on_timer_closed);
	uv_close((uv_handle_t *)pool->warm, on_timer_closed);
	free(pool);
	return NULL;
}

void loader_pool_start(struct loader_pool *pool, void (*ready)(void *data), void *data)
{
	pool->started = true;
	pool->ready = ready;
	pool->ready_data = data;
	loader_pool_turn(pool);
}

/* On the first device where its context does not fit. */
static void explain_room(const struct work *work, const struct job *job, struct error *error)
{
	for (size_t i = 0; i < job->device_count; i++) {
		if (job->devices[i]->context > budget_left(job->devices[i])) {
			room_explain(work, job->devices[i], 0, job_is_operators(job), error);
			return;
		}
	}
}

/* ---- turns ---- */

/* The one whose turn it is, with its contexts charged. Where they never fit the job ends; where other loaders'
 * are in the way it waits, and lets others pass. */
static struct job *next_job(struct loader_pool *pool)
{
	struct work *work = pool->work;
	struct job *job;
	struct error error;

	for (job = work->jobs.first; job; job = job->next)
		job->crowded = false;
	while ((job = turns_first(pool))) {
		int r = job_charge_contexts(job, NULL, &error);

		job->crowded = r == -EAGAIN;
		if (r == 0) {
			if (job->kind != JOB_LOAD || job->takes_turns)
				turns_note(pool, job->uid);
			return job;
		}
		if (job->crowded)
			continue;
		if (r == -ENOSPC)
			explain_room(work, job, &error);
		job_end(work, job, &error);
	}
	return NULL;
}

static const char *why_it_waits(const struct loader_pool *pool, const struct job *job, const char *others)
{
	if (job->crowded)
		return "CUDA contexts of running jobs leave no room for its own";
	if (turns_share_is_used_up(pool, job))
		return "its user has as many checks or moves running as publishes_per_uid allows";
	return others;
}

/* Those that are left in the queue say why. */
static void tell_waiting(const struct loader_pool *pool)
{
	struct work *work = pool->work;
	uint64_t loaders = work->config->loaders;
	char why[PHASE_BYTES_MAX + 1] = "";

	if (work->jobs.queued == 0)
		return;
	if (loader_pool_spare(pool))
		snprintf(why, sizeof(why), "the last of %llu is left to loads", (unsigned long long)loaders);
	else if (loader_pool_count(pool) >= loaders && loader_pool_in_state(pool, LOADER_STARTING) == 0)
		snprintf(why, sizeof(why), "all %llu are busy", (unsigned long long)loaders);
	else if (pool->failures > 0)
		snprintf(why, sizeof(why), "%.200s", pool->failure.message);
	for (struct job *job = work->jobs.first; job; job = job->next) {
		if (job->state == JOB_QUEUED && !job->hand_in)
			job_waits(work, job, why_it_waits(pool, job, why));
	}
}

/* Whether what is left in the queue needs what the scrub has, or a publish that waits for room. */
static bool is_short(const struct loader_pool *pool, const struct loader *spare)
{
	const struct work *work = pool->work;

	if (work->clients->waiters[WAIT_ROOM] || moves_await_room(work, NULL))
		return true;
	if (work->jobs.queued == 0)
		return false;
	for (const struct job *job = work->jobs.first; job; job = job->next) {
		if (job->state == JOB_QUEUED && job->crowded)
			return true;
	}
	return spare || (loader_pool_in_state(pool, LOADER_STARTING) == 0 &&
			 loader_pool_count(pool) >= work->config->loaders);
}

/* spare: one that stands by and has nothing to do; NULL: there is none. */
static void scrub_turn(struct loader_pool *pool, struct loader *spare)
{
	struct work *work = pool->work;
	uint64_t loaders = work->config->loaders;
	struct job *job = NULL;

	if (is_short(pool, spare)) {
		scrub_give_way(work->scrub);
		moves_give_way(work);
	} else if (spare && (loaders == 1 ||
			     loader_pool_count(pool) - loader_pool_in_state(pool, LOADER_WARM) < loaders)) {
		job = scrub_next(work->scrub);
	}
	if (job)
		loader_assign(spare, job);
}

/* Loaders that may be idle: one for each job that could begin, for each part to come, and one to spare. */
static uint64_t wanted(const struct loader_pool *pool)
{
	const struct job_table *jobs = &pool->work->jobs;
	const uint64_t most = pool->work->config->loaders;
	const struct job *job;
	uint64_t count = 0;

	/* Parts that are being filled will need a checker each, unless one has stayed: starting one takes 0.2 s, which passes
	 * meanwhile. A loader that stands by takes any job, so that a publisher who never hands in keeps it from nobody. */
	for (job = jobs->first; job && count < most / 2; job = job->next)
		count += job->hand_in && !warm_awaits(pool, job);
	count++;
	job = NULL;
	while (count < most && (job = job_queued(jobs, job, true)))
		count += !turns_share_is_used_up(pool, job);
	return count;
}

/* Loaders that stand by, or will. */
static uint64_t standing_by(const struct loader_pool *pool)
{
	return loader_pool_in_state(pool, LOADER_STARTING) + loader_pool_in_state(pool, LOADER_STANDBY);
}

static void on_idle(uv_timer_t *timer)
{
	struct loader_pool *pool = timer->data;
	struct loader *l;

	while (loader_pool_in_state(pool, LOADER_STANDBY) > wanted(pool) && (l = loader_pool_spare(pool)))
		loader_dismiss(l);
}

/* Whether fewer loaders stand by than should, and no more may be started. */
static bool loaders_are_short(const struct loader_pool *pool)
{
	return loader_pool_count(pool) >= turns_processes(pool) &&
	       loader_pool_in_state(pool, LOADER_LEAVING) == 0 && standing_by(pool) < wanted(pool);
}

static void start_wanted(struct loader_pool *pool)
{
	const uint64_t most = wanted(pool);
	uint64_t there = standing_by(pool);

	while (there < most && loader_pool_count(pool) < turns_processes(pool) &&
	       clock_steady_ms() >= pool->retry_at_ms && loader_start(pool))
		there++;
}

/* After a while: a publisher that begins and aborts, over and over, is not to cost a process each time. */
static void dismiss_unwanted_later(struct loader_pool *pool)
{
	if (loader_pool_in_state(pool, LOADER_STANDBY) > wanted(pool) &&
	    !uv_is_active((uv_handle_t *)pool->idle))
		uv_timer_start(pool->idle, on_idle, LOADER_IDLE_MS, 0);
}

void loader_pool_turn(struct loader_pool *pool)
{
	struct loader *l;
	struct job *job;

	if (!pool || !pool->started || pool->turning || pool->work->net->stopping)
		return;
	pool->turning = true;
	warm_assign(pool);
	while ((l = loader_pool_spare(pool)) && (job = next_job(pool)))
		loader_assign(l, job);
	copies_give_way(pool->work);
	scrub_turn(pool, l);
	warm_turn(pool, loaders_are_short(pool));
	start_wanted(pool);
	dismiss_unwanted_later(pool);
	tell_waiting(pool);
	pool->turning = false;
}

void loader_pool_renew(struct loader_pool *pool)
{
	struct loader *l;

	while ((l = loader_pool_spare(pool)))
		loader_dismiss(l);
	warm_renew(pool);
	loader_pool_turn(pool);
}

void loader_pool_watch(struct loader_pool *pool)
{
	for (struct loader *l = pool->first; l; l = l->next)
		loader_watch(l);
	warm_watch(pool);
	loader_pool_turn(pool);
}

void loader_pool_cancel(struct loader_pool *pool)
{
	for (struct loader *l = pool ? pool->first : NULL; l; l = l->next) {
		if (l->job && l->job->cancelled)
			loader_cancel(l);
	}
}

void loader_pool_report(struct loader_pool *pool)
{
	struct loader *l = pool ? loader_pool_spare(pool) : NULL;
	struct device_known known[DEVICES_MAX];
	struct report_params params = {.devices.items = known};
	struct message_writer w;

	if (!l || l->session->out)
		return;
	pool->asked_ms = clock_steady_ms();
	params.devices.count = device_table_known(&pool->work->ledger->devices, known);
	params.roots.items = (const char *const *)pool->work->config->roots;
	params.roots.count = roots_to_judge(pool->work->config);
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, form_report.name);
	record_put(&w, form_report.params, &params);
	loader_notify(l, &w, &(struct parcel){0});
}

void loader_pool_refresh(struct loader_pool *pool)
{
	if (clock_steady_ms() - pool->asked_ms >= REPORT_OLD_MS)
		loader_pool_report(pool);
}

/* ---- loaders that hold copies by legacy CUDA IPC (work/jobs/copies.h) ---- */

void loader_holds(struct loader *l, struct ipc_copy *copy)
{
	for (struct kept *kept = l->kept; kept; kept = kept->next)
		budget_keep_context(&kept->shared->charge);
	loader_keep(l, shared_charge_use(copy->charge));
	l->job = NULL;
	l->reads = (struct version_id){0}; /* it has unmapped the version */
	l->copy = copy;
	copy->pid = (uint64_t)l->pid;
	l->state = LOADER_HOLDING;
	uv_timer_stop(&l->timer);
}

static struct loader *holder_of(const struct loader_pool *pool, const struct ipc_copy *copy)
{
	struct loader *l = pool ? pool->first : NULL;

	while (l && l->copy != copy)
		l = l->next;
	return l;
}

void loader_let_go(struct loader_pool *pool, const struct ipc_copy *copy)
{
	struct loader *l = holder_of(pool, copy);

	if (!l)
		return;
	l->copy = NULL;
	loader_dismiss(l);
}

void loader_fail_copy(struct loader_pool *pool, const struct ipc_copy *copy, const struct error *error)
{
	struct loader *l = holder_of(pool, copy);

	if (l)
		loader_kill(l, error);
}
