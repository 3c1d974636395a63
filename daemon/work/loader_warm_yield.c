/* Warm loaders go first wherever memory or a loader is short. */
#include "loader_warm.h"
#include "scrub.h"

#include <errno.h>
#include <string.h>

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

bool warm_is_awaited(const struct work *work, const struct device *device)
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
		if (warm_is_awaited(work, kept_device(kept)) ||
		    (budget_check_context(kept_device(kept), &error) == -EAGAIN &&
		     is_wanted(work, kept_device(kept))))
			return true;
	}
	return false;
}

static bool is_in_the_way(const struct loader *l)
{
	return warm_keep_s(l->pool) == 0 || warm_has_lost(l) || is_crowding(l);
}

static void give_way(struct loader_pool *pool, bool lacks_process)
{
	struct loader *l = warm_next(pool->first);
	bool gave_way = false;

	while (l) {
		if (!is_in_the_way(l)) {
			l = warm_next(l->next);
			continue;
		}
		loader_pool_warm_later(pool);
		loader_dismiss(l);
		gave_way = true;
		l = warm_next(pool->first);
	}
	l = warm_next(pool->first);
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
	while ((l = warm_next(pool->first)))
		loader_dismiss(l);
}

void warm_turn(struct loader_pool *pool, bool lacks_process)
{
	give_way(pool, lacks_process);
	warm_make_always(pool);
}
