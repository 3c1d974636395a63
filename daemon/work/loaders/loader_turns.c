/* Whose turn it is: which of the jobs that wait gets the next loader. */
#include "loader_internal.h"
#include "../tiers/moves.h"

bool turns_may_check(const struct loader_pool *pool)
{
	uint64_t loaders = pool->work->config->loaders, checks = 0;

	for (const struct loader *l = pool->first; l; l = l->next)
		checks += l->job && !job_is_operators(l->job);
	return loaders == 1 || checks + 1 < loaders;
}

bool turns_share_is_used_up(const struct loader_pool *pool, const struct job *job)
{
	const struct work *work = pool->work;
	uint64_t count;

	if (job->kind != JOB_CHECK && !job->takes_turns)
		return false;
	count = job_queued_like(&work->jobs, job);
	for (const struct loader *l = pool->first; l; l = l->next)
		count += l->job && job_is_like(l->job, job);
	return count >= work->config->quota.per_uid[QUOTA_PUBLISHES];
}

/* When a job of the user last got a loader; 0: none has, or gpuwmd remembers none. */
static uint64_t last_served(const struct loader_pool *pool, uid_t uid)
{
	uint64_t at = 0;

	for (size_t i = 0; i < TURNS_KEPT; i++) {
		if (pool->turns[i].uid == uid && pool->turns[i].at > at)
			at = pool->turns[i].at;
	}
	return at;
}

/* In the user's entry, or else in the entry of the user who was served longest ago. */
void turns_note(struct loader_pool *pool, uid_t uid)
{
	struct turn *turn = &pool->turns[0];

	for (size_t i = 0; i < TURNS_KEPT && !(turn->at && turn->uid == uid); i++) {
		struct turn *other = &pool->turns[i];

		if ((other->at && other->uid == uid) || other->at < turn->at)
			turn = other;
	}
	*turn = (struct turn){.uid = uid, .at = ++pool->last_turn};
}

static bool is_operators_load(const struct job *job)
{
	return job->kind == JOB_LOAD && job_is_operators(job);
}

/* Host copies that are made in the background go last. Demotions go first if somebody waits for room: a load before them would wait for it too. Operators' loads go next, by age.
 * Then moves that operators or their rules asked for, by age. Of all other jobs, that of the user who was served longest ago goes first:
 * a user with many parts, or one who demotes and promotes versions all the time, does not keep loaders from a user who comes later
 * with one part. */
static bool goes_before(const struct loader_pool *pool, const struct job *job, const struct job *other)
{
	const struct work *work = pool->work;

	if (job_makes_copy(job) || job_makes_copy(other))
		return !job_makes_copy(job);
	if ((work->clients->waiters[WAIT_ROOM] || moves_await_room(work, NULL)) &&
	    (job_makes_room(job) || job_makes_room(other)))
		return !job_makes_room(other);
	if (is_operators_load(job) || is_operators_load(other))
		return !is_operators_load(other);
	if (job_is_operators(job) || job_is_operators(other))
		return !job_is_operators(other);
	return last_served(pool, job->uid) < last_served(pool, other->uid);
}

struct job *turns_first(const struct loader_pool *pool)
{
	const struct job_table *jobs = &pool->work->jobs;
	struct job *job = NULL, *first = NULL;

	while ((job = job_queued(jobs, job, turns_may_check(pool)))) {
		if (!job->crowded && !turns_share_is_used_up(pool, job) &&
		    (!first || goes_before(pool, job, first)))
			first = job;
	}
	return first;
}

uint64_t turns_processes(const struct loader_pool *pool)
{
	const struct loader *load = pool->first;
	const struct job *job = NULL;

	while ((job = job_queued(&pool->work->jobs, job, true)) && !job_makes_room(job))
		;
	while (load && !loader_waits_for_room(load))
		load = load->next;
	return pool->work->config->loaders + (job && load);
}

bool turns_lack_process(const struct loader_pool *pool)
{
	return loader_pool_count(pool) >= turns_processes(pool) && !loader_pool_spare(pool) &&
	       loader_pool_in_state(pool, LOADER_STARTING) + loader_pool_in_state(pool, LOADER_LEAVING) == 0 &&
	       turns_first(pool);
}
