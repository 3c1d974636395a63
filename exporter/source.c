#include "source.h"

#include "limits.h"
#include "../service/log.h"
#include "../base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct source {
	struct gpuwmd gpuwmd; /* the thread's */
	pthread_t thread;
	int wake; /* an eventfd: `wanted` or `stopping` was set */

	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t changed;
	struct snapshot *snapshot; /* the last one; NULL: none yet */
	uint64_t taken; /* how many there were */
	bool wanted, stopping;
	const struct tally *tally;
};

static void source_wake(struct source *source)
{
	uint64_t one = 1;

	/* A counter that is full wakes as well, and has no room for one more. */
	while (write(source->wake, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* Waits for an event, for somebody who wants to know, or until it is time to connect again. */
static void sleep_on(const struct source *source)
{
	const struct gpuwmd *gpuwmd = &source->gpuwmd;
	struct pollfd fds[2] = {{.fd = source->wake, .events = POLLIN}, {.fd = -1}};
	uint64_t count;

	if (gpuwmd->events) {
		fds[1].fd = gpuwm_events_get_fd(gpuwmd->events);
		fds[1].events = gpuwm_events_get_events(gpuwmd->events);
	}
	poll(fds, 2, gpuwmd->client ? -1 : RECONNECT_MS);
	if (fds[0].revents && read(source->wake, &count, sizeof(count)) < 0)
		return;
}

static void *source_run(void *argument)
{
	struct source *source = argument;
	struct snapshot *snapshot;
	bool wanted, stopping;

	for (;;) {
		pthread_mutex_lock(&source->lock);
		wanted = source->wanted;
		stopping = source->stopping;
		pthread_mutex_unlock(&source->lock);
		if (stopping)
			return NULL;
		if (wanted) {
			snapshot = gpuwmd_ask(&source->gpuwmd);
			pthread_mutex_lock(&source->lock);
			snapshot_unref(source->snapshot);
			source->snapshot = snapshot;
			source->taken++;
			source->wanted = false;
			pthread_cond_broadcast(&source->changed);
			pthread_mutex_unlock(&source->lock);
		} else if (gpuwmd_connect(&source->gpuwmd) == 0) {
			gpuwmd_listen(&source->gpuwmd);
		}
		sleep_on(source);
	}
}

int source_new(const char *socket, struct tally *tally, struct source **ret)
{
	struct source *source = calloc(1, sizeof(*source));
	int r;

	if (!source) {
		log_error("out of memory for what gpuwmd answers");
		return -ENOMEM;
	}
	gpuwmd_begin(&source->gpuwmd, socket, tally);
	source->tally = tally;
	pthread_mutex_init(&source->lock, NULL);
	clock_condition(&source->changed);
	source->wake = eventfd(0, EFD_CLOEXEC);
	r = source->wake < 0 ? errno : pthread_create(&source->thread, NULL, source_run, source);
	if (r == 0) {
		*ret = source;
		return 0;
	}
	log_error("the thread that asks gpuwmd can't be started: %s", strerror(r));
	if (source->wake >= 0)
		close(source->wake);
	free(source);
	return -r;
}

struct source *source_free(struct source *source)
{
	if (!source)
		return NULL;
	pthread_mutex_lock(&source->lock);
	source->stopping = true;
	pthread_mutex_unlock(&source->lock);
	source_wake(source);
	pthread_join(source->thread, NULL);
	gpuwmd_end(&source->gpuwmd);
	snapshot_unref(source->snapshot);
	pthread_cond_destroy(&source->changed);
	pthread_mutex_destroy(&source->lock);
	close(source->wake);
	free(source);
	return NULL;
}

/* A snapshot that says that gpuwmd did not answer in time. */
static struct snapshot *snapshot_of_late(struct source *source, uint64_t seen_ms, uint64_t wait_ms)
{
	struct snapshot *snapshot;

	atomic_fetch_add(&source->gpuwmd.tally->late, 1);
	snapshot = snapshot_new(source->tally);
	if (!snapshot)
		return NULL;
	snapshot->wall_ms = clock_wall_ms();
	snapshot->seen_ms = seen_ms;
	snprintf(snapshot->why, sizeof(snapshot->why), "gpuwmd has not answered for %g seconds",
		 (double)wait_ms / 1000);
	return snapshot;
}

struct snapshot *source_get(struct source *source, uint64_t wait_ms)
{
	struct snapshot *snapshot = NULL;
	const int64_t deadline = clock_deadline((int64_t)wait_ms);
	uint64_t seen_ms, taken;
	bool in_time = true;

	pthread_mutex_lock(&source->lock);
	if (!source->snapshot || clock_steady_ms() - source->snapshot->began_ms >= SNAPSHOT_MS) {
		taken = source->taken;
		source->wanted = true;
		source_wake(source);
		while (source->taken == taken && clock_left(deadline) != 0)
			clock_wait(&source->changed, &source->lock, deadline);
		in_time = source->taken != taken;
	}
	if (in_time && source->snapshot)
		snapshot = snapshot_ref(source->snapshot);
	seen_ms = source->snapshot ? source->snapshot->seen_ms : 0;
	pthread_mutex_unlock(&source->lock);
	return in_time ? snapshot : snapshot_of_late(source, seen_ms, wait_ms);
}
