/* Warm loaders go first wherever memory or a loader is short. */
#include "loader_internal.h"
#include "../jobs/verify.h"

#include <errno.h>

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
