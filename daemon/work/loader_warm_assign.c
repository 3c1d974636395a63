/* Which warm loader gets which job. */
#include "loader_warm.h"
#include "job_context.h"

/* Of those that have a context for the load the one with the most. */
static struct loader *best_for(const struct loader_pool *pool, const struct job *job)
{
	struct loader *best = NULL;
	unsigned most = 0;

	for (struct loader *l = warm_next(pool->first); l; l = warm_next(l->next)) {
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
