/* Loaders that keep their CUDA contexts: a *warm* loader has contexts and no job. There are two sorts of them.
 *
 * - After an operator's load, or a move of a version that an operator made, a loader keeps its contexts for the next of these
 *   ([loader] keep_context). A GPU has one such loader at most.
 * - After it has checked a version without a name, or a cached one, on a GPU, a *checker* stays for the next such versions of
 *   the same user there ([loader] keep_checker). It has had that user's memory mapped, so from its first check on it gets no
 *   memory of anybody else. There are CHECKERS_KEPT_MAX at most; the one that has been idle for longest goes first.
 *
 * A verify and all other checks are rare, and end with their process. So does whatever failed, was cancelled or met an error of
 * the driver. The room of a context that is kept is charged to the GPU's budget, as any loader's context is. A warm loader goes
 * first wherever memory or a loader is short, and its end is the end of its contexts. */
#include "../../../base/clock.h"
#include "loader_internal.h"
#include "../tiers/moves.h"
#include "../../net/session.h"
#include "../../../proto/wire/messages_look.h"
#include "../jobs/job_check.h"
#include "../jobs/verify.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- what one has ---- */

bool warm_is(const struct loader *l)
{
	return (l->state == LOADER_WARM || l->state == LOADER_WARMING) && !l->session->ended;
}

/* The next one from here on. */
struct loader *warm_next(struct loader *l)
{
	while (l && !warm_is(l))
		l = l->next;
	return l;
}

struct device *kept_device(const struct kept *kept)
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
		if (loader_has_context(other, kept_device(kept)))
			return true;
	}
	return false;
}

bool warm_has_lost(const struct loader *l)
{
	const struct kept *kept = NULL;

	while ((kept = loader_next_context(l, kept))) {
		if (kept_device(kept)->lost.code)
			return true;
	}
	return false;
}

/* ---- what it is for ---- */

bool warm_is_for_loads(const struct job *job)
{
	return (job->kind == JOB_LOAD && !job->takes_turns) || (job->kind == JOB_MOVE && job->by_operator);
}

static bool is_one_of_many(const struct job *job)
{
	const struct check_job *check = check_job_of(job);

	return check && check->is_one_of_many;
}

bool warm_suits(const struct loader *l, const struct job *job)
{
	if (l->state != LOADER_WARM || job->dry_run || job->given_back > 0)
		return false;
	if (!l->checks)
		return warm_is_for_loads(job);
	return is_one_of_many(job) && job->uid == l->uid && job->by_operator == l->by_operator &&
	       loader_has_context(l, job->devices[0]);
}

bool warm_is_awaited(const struct work *work, const struct device *device)
{
	const struct waiter *w = work->clients->waiters[WAIT_ROOM];

	while (w && strcmp(w->device, device->id) != 0)
		w = w->next;
	return w != NULL || moves_await_room(work, device);
}

/* ---- how long ---- */

uint64_t warm_keep_s(const struct loader *l)
{
	const struct work *work = l->pool->work;

	if (work->draining)
		return 0;
	return l->checks ? work->config->keep_checker_s : work->config->keep_context_s;
}

static uint64_t left_ms(const struct loader *l)
{
	uint64_t until = l->warm_since_ms + warm_keep_s(l) * 1000, now = clock_steady_ms();

	return until > now ? until - now : 0;
}

static void watch_end(struct loader *l)
{
	if (warm_keep_s(l) == KEEP_ALWAYS)
		uv_timer_stop(&l->timer);
	else
		uv_timer_start(&l->timer, loader_on_timer, left_ms(l), 0);
}

void warm_watch(struct loader_pool *pool)
{
	for (struct loader *l = warm_next(pool->first); l; l = warm_next(l->next)) {
		if (l->state == LOADER_WARM)
			watch_end(l);
	}
	pool->warm_at_ms = 0;
}

void warm_stay(struct loader *l)
{
	l->state = LOADER_WARM;
	l->keeps = true;
	l->warm_since_ms = clock_steady_ms();
	l->pool->warm_failures = 0;
	watch_end(l);
}

/* ---- after a job ---- */

/* Returns whether the loader is charged with the contexts of its job and with nothing else. With any other charge the loader may still
 * hold the memory of a version. A move is an exception: its loader closes the old and the new memory before it reports the end. */
static bool has_contexts_only(const struct loader *l)
{
	for (const struct kept *kept = l->kept; kept; kept = kept->next) {
		if (!kept->shared->charge.context && l->job->kind != JOB_MOVE)
			return false;
	}
	for (size_t i = 0; i < l->job->device_count; i++) {
		if (l->job->devices[i]->context > 0 && !loader_has_context(l, l->job->devices[i]))
			return false;
	}
	return l->kept != NULL;
}

/* Of the loaders for loads on one GPU the one with the most contexts stays. */
static bool has_most_contexts(const struct loader *l)
{
	for (const struct loader *other = warm_next(l->pool->first); other; other = warm_next(other->next)) {
		if (!other->checks && share_a_gpu(l, other) && count_contexts(other) > count_contexts(l))
			return false;
	}
	return true;
}

bool loader_may_stay(const struct loader *l)
{
	if (warm_keep_s(l) == 0 || l->state != LOADER_BUSY || l->outdated)
		return false;
	if (l->checks ? !is_one_of_many(l->job) : !warm_is_for_loads(l->job) || !has_most_contexts(l))
		return false;
	return !warm_has_lost(l) && has_contexts_only(l);
}

/* Those for loads that have a GPU in common with it. */
static void dismiss_others(const struct loader *l)
{
	struct loader *other = warm_next(l->pool->first);

	while (other) {
		if (other == l || other->checks || !share_a_gpu(l, other)) {
			other = warm_next(other->next);
			continue;
		}
		loader_dismiss(other);
		other = warm_next(l->pool->first);
	}
}

struct loader *warm_oldest_checker(const struct loader_pool *pool)
{
	struct loader *oldest = NULL;

	for (struct loader *l = warm_next(pool->first); l; l = warm_next(l->next)) {
		if (l->checks && (!oldest || l->warm_since_ms <= oldest->warm_since_ms))
			oldest = l;
	}
	return oldest;
}

/* Gives back what it was charged with besides contexts. */
static void drop_memory(struct loader *l)
{
	struct kept **link = &l->kept;

	while (*link) {
		struct kept *kept = *link;

		if (kept->shared->charge.context) {
			link = &kept->next;
			continue;
		}
		*link = kept->next;
		shared_charge_drop(kept->shared);
		free(kept);
	}
	work_later(l->pool->work, LATER_ROOM);
}

void loader_stays(struct loader *l)
{
	unsigned checkers = 0;

	l->job = NULL;
	l->reads = (struct version_id){0}; /* it has unmapped what it shared, or moved */
	drop_memory(l);
	warm_stay(l);
	if (!l->checks) {
		dismiss_others(l);
		return;
	}
	for (const struct loader *other = warm_next(l->pool->first); other; other = warm_next(other->next))
		checkers += other->checks;
	if (checkers > CHECKERS_KEPT_MAX)
		loader_dismiss(warm_oldest_checker(l->pool));
}

/* ---- what is told ---- */

static void put_one(struct message_writer *w, const struct loader *l, bool with_user)
{
	const bool ready = l->state == LOADER_WARM;
	const uint64_t left = ready ? left_ms(l) : 0, uid = l->uid;
	const struct kept *kept = NULL;

	message_begin_map(w, NULL);
	record_put(w, &keeping_told_record,
		   &(struct keeping_told){
			   .pid = (uint64_t)l->pid,
			   .ready = ready,
			   .left_ms = ready && warm_keep_s(l) != KEEP_ALWAYS ? &left : NULL,
			   .checks = l->checks,
			   .uid = l->checks && with_user ? &uid : NULL,
		   });
	message_begin_array(w, "contexts");
	while ((kept = loader_next_context(l, kept)))
		record_put_map(w, NULL, &context_told_record,
			       &(struct context_told){kept_device(kept)->id, kept->shared->charge.bytes});
	message_end(w);
	message_end(w);
}

void loader_pool_put(struct message_writer *w, const struct loader_pool *pool, bool with_users)
{
	message_begin_array(w, "keeping");
	for (const struct loader *l = pool ? warm_next(pool->first) : NULL; l; l = warm_next(l->next))
		put_one(w, l, with_users);
	message_end(w);
}

/* ---- when a loader or memory is short ---- */

/* Whether somebody waits for room for a context there. A job that this checker itself can have needs no other context. */
static bool context_is_wanted(const struct loader *l, const struct device *device)
{
	const struct work *work = l->pool->work;

	for (const struct job *job = work->jobs.first; job; job = job->next) {
		if (job_is_crowded_on(job, device) && !(l->checks && warm_suits(l, job)))
			return true;
	}
	return scrub_waits(work->scrub);
}

bool warm_is_crowding(const struct loader *l)
{
	const struct work *work = l->pool->work;
	const struct kept *kept = NULL;
	struct error error;

	while ((kept = loader_next_context(l, kept))) {
		if (warm_is_awaited(work, kept_device(kept)) ||
		    (budget_check_context(kept_device(kept), &error) == -EAGAIN &&
		     context_is_wanted(l, kept_device(kept))))
			return true;
	}
	return false;
}

static void dismiss(struct loader *l)
{
	if (!l->checks)
		loader_pool_warm_later(l->pool);
	loader_dismiss(l);
}

static void dismiss_those_in_the_way(struct loader_pool *pool)
{
	struct loader *l = warm_next(pool->first);

	while (l) {
		if (warm_keep_s(l) > 0 && !warm_has_lost(l) && !warm_is_crowding(l)) {
			l = warm_next(l->next);
			continue;
		}
		dismiss(l);
		l = warm_next(pool->first);
	}
}

void warm_renew(struct loader_pool *pool)
{
	struct loader *l;

	for (l = pool->first; l; l = l->next)
		l->outdated = true;
	while ((l = warm_next(pool->first)))
		loader_dismiss(l);
}

void warm_turn(struct loader_pool *pool, bool lacks_standby)
{
	struct loader *l = NULL;
	bool lacks_process;

	dismiss_those_in_the_way(pool);
	lacks_process = turns_lack_process(pool); /* false while one leaves, so that one ends at a time */
	if (lacks_process || lacks_standby)
		l = warm_oldest_checker(pool);
	if (!l && lacks_process)
		l = warm_next(pool->first);
	if (l)
		dismiss(l);
	warm_make_always(pool);
}

/* ---- before there is a load: keep_context = always ---- */

/* Whether a loader keeps a context on the device for loads, or may when its load has ended. */
static bool is_covered(const struct loader_pool *pool, const struct device *device)
{
	for (const struct loader *l = pool->first; l; l = l->next) {
		bool loads = l->state == LOADER_BUSY && warm_is_for_loads(l->job);

		if ((loads || (warm_is(l) && !l->checks)) && loader_has_context(l, device))
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
	    warm_is_awaited(l->pool->work, device) || budget_charge_context(device, &charge, &error) < 0)
		return false;
	shared = charge.bytes ? shared_charge_new(&charge) : NULL;
	if (!shared) {
		budget_release(&charge);
		return false;
	}
	loader_keep(l, shared);
	return true;
}

/* Contexts on all GPUs that have none and have room for one. After a failure: on one of these GPUs, another one each time, so that a
 * GPU that refuses its context keeps no other GPU from one. */
static void loader_make_contexts(struct loader_pool *pool, struct loader *l)
{
	const struct device_table *all = &pool->work->ledger->devices;
	const unsigned failures = pool->warm_failures;
	const char *devices[PARTS_PER_VERSION_MAX];
	struct warm_params params = {.devices.items = devices};
	struct message_writer w;

	for (size_t i = 0; i < all->count; i++) {
		if (add_context(l, all->devices[(failures + i) % all->count]) && failures > 0)
			break;
	}
	if (!loader_next_context(l, NULL))
		return;
	l->state = LOADER_WARMING;
	l->keeps = true;
	uv_timer_start(&l->timer, loader_on_timer, pool->work->config->loader_start_ms, 0);
	for (const struct kept *kept = NULL; (kept = loader_next_context(l, kept));)
		devices[params.devices.count++] = kept_device(kept)->id;
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, form_warm.name);
	record_put(&w, form_warm.params, &params);
	loader_notify(l, &w, &(struct parcel){0});
}

static void on_warm(uv_timer_t *timer)
{
	struct loader_pool *pool = timer->data;

	pool->warm_at_ms = 0;
	work_later(pool->work, LATER_TURN);
}

/* Takes a loader that stands by, if nobody else needs it and another one can be started in its place. */
void warm_make_always(struct loader_pool *pool)
{
	const struct work *work = pool->work;
	struct loader *spare = loader_pool_spare(pool);
	uint64_t now = clock_steady_ms();

	if (work->draining || work->config->keep_context_s != KEEP_ALWAYS || !spare || work->jobs.queued > 0 ||
	    loader_pool_count(pool) >= work->config->loaders)
		return;
	if (now < pool->warm_at_ms)
		uv_timer_start(pool->warm, on_warm, pool->warm_at_ms - now, 0);
	else
		loader_make_contexts(pool, spare);
}

void loader_is_warm(struct loader *l, const struct error *error)
{
	struct loader_pool *pool = l->pool;

	if (l->state != LOADER_WARMING)
		return;
	if (!error) {
		warm_stay(l);
	} else {
		loader_warm_failed(l, error);
		loader_dismiss(l);
	}
	work_later(pool->work, LATER_TURN);
}
