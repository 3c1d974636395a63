/* Warm loaders go first wherever memory or a loader is short. */
#include "loader_warm.h"
#include "../jobs/scrub.h"

#include <errno.h>

static bool needs(const struct job *job, const struct device *device)
{
	size_t i = 0;

	while (i < job->device_count && job->devices[i] != device)
		i++;
	return i < job->device_count && job->state == JOB_QUEUED && job->crowded;
}

/* Whether somebody waits for room for a context there. A job that this checker itself can have needs no other context. */
static bool is_wanted(const struct loader *l, const struct device *device)
{
	const struct work *work = l->pool->work;

	for (const struct job *job = work->jobs.first; job; job = job->next) {
		if (needs(job, device) && !(l->checks && warm_suits(l, job)))
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
		     is_wanted(l, kept_device(kept))))
			return true;
	}
	return false;
}

static bool is_in_the_way(const struct loader *l)
{
	return warm_keep_s(l) == 0 || warm_has_lost(l) || warm_is_crowding(l);
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
		if (!is_in_the_way(l)) {
			l = warm_next(l->next);
			continue;
		}
		dismiss(l);
		l = warm_next(pool->first);
	}
}

/* One loader ends at a time: turns_lack_process is false while it leaves. */
static void give_place(struct loader_pool *pool, bool lacks_standby)
{
	const bool lacks_process = turns_lack_process(pool);
	struct loader *l = lacks_process || lacks_standby ? warm_oldest_checker(pool) : NULL;

	if (!l && lacks_process)
		l = warm_next(pool->first);
	if (l)
		dismiss(l);
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
	dismiss_those_in_the_way(pool);
	give_place(pool, lacks_standby);
	warm_make_always(pool);
}
