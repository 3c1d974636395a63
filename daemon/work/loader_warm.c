/* Loaders that keep their CUDA contexts for the next load ([loader] keep_context): a *warm* loader has contexts and no job.
 *
 * - Only operators' loads make and use kept contexts. A check or a verify maps memory that another user made, and ends with its
 *   process; a load that failed, was cancelled or met an error of the driver does too.
 * - A GPU has one kept context at most. Its room is charged to the GPU's budget, as any loader's context is.
 * - A warm loader goes first wherever memory or a loader is short, and its end is the end of its contexts. */
#include "../base/clock.h"
#include "loader_warm.h"
#include "../net/session.h"
#include "../../proto/messages_look.h"

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

/* ---- how long ---- */

uint64_t warm_keep_s(const struct loader_pool *pool)
{
	return pool->work->draining ? 0 : pool->work->config->keep_context_s;
}

static uint64_t left_ms(const struct loader *l)
{
	uint64_t until = l->warm_since_ms + warm_keep_s(l->pool) * 1000, now = clock_steady_ms();

	return until > now ? until - now : 0;
}

static void watch_end(struct loader *l)
{
	if (warm_keep_s(l->pool) == KEEP_ALWAYS)
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
	if (warm_keep_s(l->pool) == 0 || l->state != LOADER_BUSY || l->outdated || l->job->kind != JOB_LOAD ||
	    warm_has_lost(l) || !has_contexts_only(l))
		return false;
	for (const struct loader *other = warm_next(l->pool->first); other; other = warm_next(other->next)) {
		if (share_a_gpu(l, other) && count_contexts(other) > count_contexts(l))
			return false;
	}
	return true;
}

/* Those that have a GPU in common with it. */
static void dismiss_others(const struct loader *l)
{
	struct loader *other = warm_next(l->pool->first);

	while (other) {
		if (other == l || !share_a_gpu(l, other)) {
			other = warm_next(other->next);
			continue;
		}
		loader_dismiss(other);
		other = warm_next(l->pool->first);
	}
}

void loader_stays(struct loader *l)
{
	l->job = NULL;
	l->reads = (struct version_id){0}; /* it has unmapped what it shared */
	warm_stay(l);
	dismiss_others(l);
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
			   .left_ms = ready && warm_keep_s(l->pool) != KEEP_ALWAYS ? &left : NULL,
		   });
	message_begin_array(w, "contexts");
	while ((kept = loader_next_context(l, kept)))
		record_put_map(w, NULL, &context_told_record,
			       &(struct context_told){kept_device(kept)->id, kept->shared->charge.bytes});
	message_end(w);
	message_end(w);
}

void loader_pool_put(struct message_writer *w, const struct loader_pool *pool)
{
	message_begin_array(w, "keeping");
	for (const struct loader *l = pool ? warm_next(pool->first) : NULL; l; l = warm_next(l->next))
		put_one(w, l);
	message_end(w);
}
