/* Loaders that keep their CUDA contexts for the next load ([loader] keep_context): a *warm* loader has contexts and no job.
 *
 * - Only operators' loads make and use kept contexts. A check or a verify maps memory that another user made, and ends with its
 *   process; a load that failed, was cancelled or met an error of the driver does too.
 * - A GPU has one kept context at most. Its room is charged to the GPU's budget, as any loader's context is.
 * - A warm loader goes first wherever memory or a loader is short, and its end is the end of its contexts. */
#include "../base/clock.h"
#include "loader_internal.h"
#include "job_context.h"
#include "scrub.h"
#include "../net/session.h"
#include "../../proto/messages_look.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- what one has ---- */

static bool is_warm(const struct loader *l)
{
	return (l->state == LOADER_WARM || l->state == LOADER_WARMING) && !l->session->ended;
}

/* The next one from here on. */
static struct loader *next_warm(struct loader *l)
{
	while (l && !is_warm(l))
		l = l->next;
	return l;
}

static struct device *device_of(const struct kept *kept)
{
	return kept->shared->charge.device;
}

static unsigned count_contexts(const struct loader *l)
{
	const struct kept *kept = NULL;
	unsigned count = 0;

	while ((kept = loader_next_context(l, kept)))
		count++;
	return count;
}

static bool share_a_gpu(const struct loader *l, const struct loader *other)
{
	const struct kept *kept = NULL;

	while ((kept = loader_next_context(l, kept))) {
		if (loader_has_context(other, device_of(kept)))
			return true;
	}
	return false;
}

static bool has_lost(const struct loader *l)
{
	const struct kept *kept = NULL;

	while ((kept = loader_next_context(l, kept))) {
		if (device_of(kept)->lost.code)
			return true;
	}
	return false;
}

/* ---- how long ---- */

static uint64_t keep_s(const struct loader_pool *pool)
{
	return pool->work->draining ? 0 : pool->work->config->keep_context_s;
}

static uint64_t left_ms(const struct loader *l)
{
	uint64_t until = l->warm_since_ms + keep_s(l->pool) * 1000, now = clock_steady_ms();

	return until > now ? until - now : 0;
}

static void watch_end(struct loader *l)
{
	if (keep_s(l->pool) == KEEP_ALWAYS)
		uv_timer_stop(&l->timer);
	else
		uv_timer_start(&l->timer, loader_on_timer, left_ms(l), 0);
}

void warm_watch(struct loader_pool *pool)
{
	for (struct loader *l = next_warm(pool->first); l; l = next_warm(l->next)) {
		if (l->state == LOADER_WARM)
			watch_end(l);
	}
	pool->warm_at_ms = 0;
}

static void stay(struct loader *l)
{
	l->state = LOADER_WARM;
	l->keeps = true;
	l->warm_since_ms = clock_steady_ms();
	l->pool->warm_failures = 0;
	watch_end(l);
}

/* ---- after a load ---- */

/* Whether it is charged with the contexts of its job, and with nothing else: it may hold the memory of a version then. */
static bool has_contexts_only(const struct loader *l)
{
	for (const struct kept *kept = l->kept; kept; kept = kept->next) {
		if (!kept->shared->charge.context)
			return false;
	}
	for (size_t i = 0; i < l->job->device_count; i++) {
		if (l->job->devices[i]->context > 0 && !loader_has_context(l, l->job->devices[i]))
			return false;
	}
	return l->kept != NULL;
}

bool loader_may_stay(const struct loader *l)
{
	if (keep_s(l->pool) == 0 || l->state != LOADER_BUSY || l->outdated || l->job->kind != JOB_LOAD ||
	    has_lost(l) || !has_contexts_only(l))
		return false;
	for (const struct loader *other = next_warm(l->pool->first); other; other = next_warm(other->next)) {
		if (share_a_gpu(l, other) && count_contexts(other) > count_contexts(l))
			return false;
	}
	return true;
}

/* Those that have a GPU in common with it. */
static void dismiss_others(const struct loader *l)
{
	struct loader *other = next_warm(l->pool->first);

	while (other) {
		if (other == l || !share_a_gpu(l, other)) {
			other = next_warm(other->next);
			continue;
		}
		loader_dismiss(other);
		other = next_warm(l->pool->first);
	}
}

void loader_stays(struct loader *l)
{
	l->job = NULL;
	l->reads = (struct version_id){0}; /* it has unmapped what it shared */
	stay(l);
	dismiss_others(l);
}

/* ---- the next load ---- */

/* Of those that have a context for the load the one with the most. */
static struct loader *best_for(const struct loader_pool *pool, const struct job *job)
{
	struct loader *best = NULL;
	unsigned most = 0;

	for (struct loader *l = next_warm(pool->first); l; l = next_warm(l->next)) {
		unsigned count = 0;

		for (size_t i = 0; l->state == LOADER_WARM && i < job->device_count; i++)
			count += loader_has_context(l, job->devices[i]);
		if (count > most) {
			most = count;
			best = l;
		}
	}
	return best;
}

static bool assign_one(struct loader_pool *pool)
{
	const struct job_table *jobs = &pool->work->jobs;
	struct job *job = NULL;
	struct error error;

	while ((job = job_queued(jobs, job, false))) {
		/* What ended one loader may have ended others that keep contexts of the same GPUs. */
		struct loader *l = job->dry_run || job->given_back > 0 ? NULL : best_for(pool, job);

		/* What does not fit waits or fails in its turn. */
		if (!l || job_charge_contexts(job, l, &error) < 0)
			continue;
		loader_assign(l, job);
		return true;
	}
	return false;
}

void warm_assign(struct loader_pool *pool)
{
	while (assign_one(pool))
		;
}

/* ---- giving way ---- */

static bool needs(const struct job *job, const struct device *device)
{
	size_t i = 0;

	while (i < job->device_count && job->devices[i] != device)
		i++;
	return i < job->device_count && job->state == JOB_QUEUED && job->crowded;
}

/* Whether somebody waits for room for a context there. */
static bool is_wanted(const struct work *work, const struct device *device)
{
	for (const struct job *job = work->jobs.first; job; job = job->next) {
		if (needs(job, device))
			return true;
	}
	return scrub_waits(work->scrub);
}

/* Whether a publish waits for room there. */
static bool is_awaited(const struct work *work, const struct device *device)
{
	const struct waiter *w = work->clients->waiters[WAIT_ROOM];

	while (w && strcmp(w->device, device->id) != 0)
		w = w->next;
	return w != NULL;
}

/* Whether somebody can't have a context or memory on a GPU because of a context that is kept there. */
static bool is_crowding(const struct loader *l)
{
	const struct work *work = l->pool->work;
	const struct kept *kept = NULL;
	struct error error;

	while ((kept = loader_next_context(l, kept))) {
		if (is_awaited(work, device_of(kept)) ||
		    (budget_check_context(device_of(kept), &error) == -EAGAIN &&
		     is_wanted(work, device_of(kept))))
			return true;
	}
	return false;
}

static bool is_in_the_way(const struct loader *l)
{
	return keep_s(l->pool) == 0 || has_lost(l) || is_crowding(l);
}

static void give_way(struct loader_pool *pool, bool lacks_process)
{
	struct loader *l = next_warm(pool->first);
	bool gave_way = false;

	while (l) {
		if (!is_in_the_way(l)) {
			l = next_warm(l->next);
			continue;
		}
		loader_pool_warm_later(pool);
		loader_dismiss(l);
		gave_way = true;
		l = next_warm(pool->first);
	}
	l = next_warm(pool->first);
	if (l && lacks_process && !gave_way) {
		loader_pool_warm_later(pool);
		loader_dismiss(l);
	}
}

void warm_renew(struct loader_pool *pool)
{
	struct loader *l;

	for (l = pool->first; l; l = l->next)
		l->outdated = true;
	while ((l = next_warm(pool->first)))
		loader_dismiss(l);
}

/* ---- before there is a load ---- */

/* Whether a loader keeps a context on the device, or may when its load has ended. */
static bool is_covered(const struct loader_pool *pool, const struct device *device)
{
	for (const struct loader *l = pool->first; l; l = l->next) {
		bool loads = l->state == LOADER_BUSY && l->job->kind == JOB_LOAD;

		if ((loads || is_warm(l)) && loader_has_context(l, device))
			return true;
	}
	return false;
}

/* Charges the loader with a context on the device, if there is room. */
static bool add_context(struct loader *l, struct device *device)
{
	struct budget_charge charge = {0};
	struct shared_charge *shared = NULL;
	struct error error;

	if (!device->kind->context_bytes || device->lost.code || is_covered(l->pool, device) ||
	    is_awaited(l->pool->work, device) || budget_charge_context(device, &charge, &error) < 0)
		return false;
	shared = charge.bytes ? shared_charge_new(&charge) : NULL;
	if (!shared) {
		budget_release(&charge);
		return false;
	}
	loader_keep(l, shared);
	return true;
}

/* Charges the loader with contexts on all GPUs that have none and have room for it. Where some could not be made: on one of
 * them, another one each time, so that a GPU that refuses keeps no other one from its context. */
static void add_contexts(struct loader *l)
{
	const struct device_table *devices = &l->pool->work->ledger->devices;
	const unsigned failures = l->pool->warm_failures;

	for (size_t i = 0; i < devices->count; i++) {
		if (add_context(l, devices->devices[(failures + i) % devices->count]) && failures > 0)
			return;
	}
}

static void make(struct loader_pool *pool, struct loader *l)
{
	const char *devices[PARTS_PER_VERSION_MAX];
	struct warm_params params = {.devices.items = devices};
	struct message_writer w;

	add_contexts(l);
	if (!loader_next_context(l, NULL))
		return;
	l->state = LOADER_WARMING;
	l->keeps = true;
	uv_timer_start(&l->timer, loader_on_timer, pool->work->config->loader_start_ms, 0);
	for (const struct kept *kept = NULL; (kept = loader_next_context(l, kept));)
		devices[params.devices.count++] = device_of(kept)->id;
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, form_warm.name);
	record_put(&w, form_warm.params, &params);
	loader_notify(l, &w, &(struct parcel){0});
}

static void on_warm(uv_timer_t *timer)
{
	struct loader_pool *pool = timer->data;

	pool->warm_at_ms = 0;
	pool->work->turn_due = true;
}

/* Of loaders that stand by one, when nobody else needs it and another one can be started in its place. */
static void make_always(struct loader_pool *pool)
{
	const struct work *work = pool->work;
	struct loader *spare = loader_pool_spare(pool);
	uint64_t now = clock_steady_ms();

	if (keep_s(pool) != KEEP_ALWAYS || !spare || work->jobs.queued > 0 ||
	    loader_pool_count(pool) >= work->config->loaders)
		return;
	if (now < pool->warm_at_ms)
		uv_timer_start(pool->warm, on_warm, pool->warm_at_ms - now, 0);
	else
		make(pool, spare);
}

void loader_is_warm(struct loader *l, const struct error *error)
{
	struct loader_pool *pool = l->pool;

	if (l->state != LOADER_WARMING)
		return;
	if (!error) {
		stay(l);
	} else {
		loader_warm_failed(l, error);
		loader_dismiss(l);
	}
	pool->work->turn_due = true;
}

void warm_turn(struct loader_pool *pool, bool lacks_process)
{
	give_way(pool, lacks_process);
	make_always(pool);
}

/* ---- what is told ---- */

static void put_one(struct message_writer *w, const struct loader *l)
{
	const bool ready = l->state == LOADER_WARM;
	const uint64_t left = ready ? left_ms(l) : 0;
	const struct kept *kept = NULL;

	message_begin_map(w, NULL);
	record_put(w, &keeping_told_record,
		   &(struct keeping_told){
			   .pid = (uint64_t)l->pid,
			   .ready = ready,
			   .left_ms = ready && keep_s(l->pool) != KEEP_ALWAYS ? &left : NULL,
		   });
	message_begin_array(w, "contexts");
	while ((kept = loader_next_context(l, kept)))
		record_put_map(w, NULL, &context_told_record,
			       &(struct context_told){device_of(kept)->id, kept->shared->charge.bytes});
	message_end(w);
	message_end(w);
}

void loader_pool_put(struct message_writer *w, const struct loader_pool *pool)
{
	message_begin_array(w, "keeping");
	for (const struct loader *l = pool ? next_warm(pool->first) : NULL; l; l = next_warm(l->next))
		put_one(w, l);
	message_end(w);
}
