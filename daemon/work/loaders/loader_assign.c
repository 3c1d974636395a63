/* Gives jobs to loaders. */
#include "loader_internal.h"
#include "../../../base/clock.h"
#include "../../net/session.h"
#include "../jobs/job.h"
#include "../versions/sharing.h"
#include "../../../proto/wire/messages.h"

void loader_assign(struct loader *l, struct job *job)
{
	struct work *work = l->pool->work;
	struct message_writer w;
	int fds[PACKET_FDS_MAX];
	struct parcel with = {.fds = fds};
	const struct version *shares = sharing_of(job);

	if (job->actions->is_of_part) {
		l->reads = job->version;
		l->reads_replica = job->replica;
	} else if (shares) {
		l->reads = shares->id;
		l->reads_replica = READS_EVERY_REPLICA;
	}
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, NOTIFY_JOB);
	with.fd_count = job_put(&w, job, work->config, fds);
	with.close_fds = job->actions->begin && job->actions->begin(job);
	job_hand_contexts(job, l);
	if (job->kind == JOB_CHECK) { /* until the process ends: it maps memory of this user */
		l->checks = true;
		l->uid = job->uid;
		l->by_operator = job->by_operator;
	}
	/* The descriptors of other jobs are gone with their message. */
	l->unbegun = job->kind == JOB_LOAD || job->kind == JOB_REGION || job->kind == JOB_MOVE ||
		     job->publisher_sock >= 0;
	l->state = LOADER_BUSY;
	l->job = job;
	loader_notify(l, &w, &with);
	job_start(work, job, l);
	job_watch(job);
	loader_watch(l);
	if (l->keeps)
		uv_timer_start(&l->timer, loader_on_timer, KEEP_BEGIN_MS, 0);
}

/* ---- which warm loader gets which job ---- */

/* Returns the loader with the most contexts for the job, or NULL. */
static struct loader *best_for(const struct loader_pool *pool, const struct job *job)
{
	struct loader *best = NULL;
	unsigned most = 0;

	for (struct loader *l = warm_next(pool->first); l; l = warm_next(l->next)) {
		unsigned count = 0;

		for (size_t i = 0; warm_suits(l, job) && i < job->device_count; i++)
			count += loader_has_context(l, job->devices[i]);
		if (count > most) {
			most = count;
			best = l;
		}
	}
	return best;
}

/* A user whose checker has stayed waits for their turn as all others do: if somebody else needs the checker's memory or its
 * place among the loaders, the checker ends. */
static bool has_its_turn(const struct loader *l, const struct job *job)
{
	if (warm_is_for_loads(job))
		return true;
	return !turns_share_is_used_up(l->pool, job) && !warm_is_crowding(l) &&
	       (!turns_lack_process(l->pool) || turns_first(l->pool) == job);
}

static bool assign_one(struct loader_pool *pool)
{
	const struct job_table *jobs = &pool->work->jobs;
	struct job *job = NULL;
	struct error error;

	while ((job = job_queued(jobs, job, turns_may_check(pool)))) {
		struct loader *l = best_for(pool, job);

		/* What does not fit waits or fails in its turn. */
		if (!l || !has_its_turn(l, job) || job_charge_contexts(job, l, &error) < 0)
			continue;
		if (job->kind == JOB_CHECK)
			turns_note(pool, job->uid);
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

bool warm_awaits(const struct loader_pool *pool, const struct job *job)
{
	struct loader *one = NULL;
	unsigned count = 0;

	for (struct loader *l = warm_next(pool->first); l; l = warm_next(l->next)) {
		if (warm_suits(l, job)) {
			one = l;
			count++;
		}
	}
	for (const struct job *older = pool->work->jobs.first; older != job && count > 0; older = older->next)
		count -= older->hand_in && warm_suits(one, older);
	return count > 0;
}
