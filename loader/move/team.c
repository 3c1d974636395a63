#include "move_internal.h"

#include "../../base/clock.h"
#include "../../service/process.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

struct team {
	const struct team_work *work;
	uint64_t next, done; /* atomic: an item, bytes */
	bool stop; /* atomic */
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	unsigned named, running;
	struct error error; /* the first one */
};

static bool team_stopped(const struct team *team)
{
	return __atomic_load_n(&team->stop, __ATOMIC_RELAXED);
}

static void team_stop(struct team *team)
{
	__atomic_store_n(&team->stop, true, __ATOMIC_RELAXED);
}

bool team_add(struct team *team, uint64_t bytes)
{
	__atomic_fetch_add(&team->done, bytes, __ATOMIC_RELAXED);
	return !team_stopped(team);
}

static void *team_member(void *data)
{
	struct team *team = data;
	const struct team_work *work = team->work;
	struct error error = {0};
	uint64_t item;
	unsigned number;
	int r = 0;

	pthread_mutex_lock(&team->lock);
	number = team->named++;
	pthread_mutex_unlock(&team->lock);
	while (r == 0 && !team_stopped(team) &&
	       (item = __atomic_fetch_add(&team->next, 1, __ATOMIC_RELAXED)) < work->count)
		r = work->run(team, item, number, work->data, &error);
	pthread_mutex_lock(&team->lock);
	if (r < 0 && !team->error.code)
		team->error = error;
	if (r < 0)
		team_stop(team);
	team->running--;
	pthread_cond_signal(&team->changed);
	pthread_mutex_unlock(&team->lock);
	return NULL;
}

/* Fewer threads than wanted do all items too. */
static unsigned team_start(struct team *team, pthread_t threads[TEAM_MEMBERS_MAX], struct error *error)
{
	const struct team_work *work = team->work;
	char limits[TEXT_BYTES_MAX + 1];
	unsigned count = 0;
	int r = 0;

	pthread_mutex_lock(&team->lock);
	while (r == 0 && count < work->members && count < work->count && count < TEAM_MEMBERS_MAX) {
		r = pthread_create(&threads[count], NULL, team_member, team);
		if (r == 0) {
			team->running++;
			count++;
		}
	}
	pthread_mutex_unlock(&team->lock);
	if (count == 0 && r != 0) {
		task_limits_explain(limits, sizeof(limits));
		error_set(error, -EAGAIN, limits, "starting a thread failed: %s", strerror(r));
	}
	return count;
}

static int team_tell(const struct team *team, uint64_t *told)
{
	uint64_t done = __atomic_load_n(&team->done, __ATOMIC_RELAXED), more = done - *told;

	*told = done;
	return team->work->progress ? team->work->progress(more, team->work->user_data) : 0;
}

/* Returns what progress returned, when all members have ended. */
static int team_watch(struct team *team)
{
	uint64_t told = 0;
	int r = 0;

	pthread_mutex_lock(&team->lock);
	while (team->running > 0) {
		clock_wait(&team->changed, &team->lock, clock_deadline(TEAM_LOOK_MS));
		if (r != 0)
			continue;
		pthread_mutex_unlock(&team->lock);
		r = team_tell(team, &told);
		if (r != 0)
			team_stop(team);
		pthread_mutex_lock(&team->lock);
	}
	pthread_mutex_unlock(&team->lock);
	return r != 0 ? r : team_tell(team, &told);
}

int team_run(const struct team_work *work, struct error *error)
{
	struct team team = {.work = work};
	pthread_t threads[TEAM_MEMBERS_MAX];
	unsigned count;
	int r = 0;

	pthread_mutex_init(&team.lock, NULL);
	clock_condition(&team.changed);
	count = team_start(&team, threads, error);
	if (count > 0)
		r = team_watch(&team);
	else if (work->count > 0)
		r = -EAGAIN;
	for (unsigned i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	pthread_cond_destroy(&team.changed);
	pthread_mutex_destroy(&team.lock);
	if (team.error.code)
		*error = team.error;
	return team.error.code ? team.error.code : r;
}
