#include "folder_ask.h"

#include "../../base/clock.h"
#include "../../base/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define STACK_BYTES (64 << 10)
/* Threads that may wait for ever at the same time: one for each folder that the configuration had, and of those few hang. */
#define WAITING_MAX 4

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct folder_ask *waiting; /* those that were left */

static void *ask_run(void *data)
{
	struct folder_ask *ask = data;
	bool left;

	ask->run(ask);
	pthread_mutex_lock(&lock);
	ask->answered = true;
	left = ask->left;
	if (left)
		DL_DELETE(waiting, ask);
	pthread_cond_signal(&ask->changed);
	pthread_mutex_unlock(&lock);
	if (left) {
		pthread_cond_destroy(&ask->changed);
		ask->drop(ask);
	}
	return NULL;
}

void folder_ask_step(struct folder_ask *ask)
{
	pthread_mutex_lock(&lock);
	ask->steps++;
	pthread_cond_signal(&ask->changed);
	pthread_mutex_unlock(&lock);
}

static bool is_hopeless(const char *path)
{
	bool same = false;
	int count = 0;

	pthread_mutex_lock(&lock);
	for (const struct folder_ask *other = waiting; other; other = other->next) {
		same |= strcmp(other->path, path) == 0;
		count++;
	}
	pthread_mutex_unlock(&lock);
	return same || count >= WAITING_MAX;
}

static bool ask_answers(struct folder_ask *ask, int64_t wait_ms)
{
	int64_t deadline = clock_deadline(wait_ms);
	uint64_t steps = 0;
	bool answered;

	pthread_mutex_lock(&lock);
	while (!ask->answered && clock_left(deadline) > 0) {
		clock_wait(&ask->changed, &lock, deadline);
		if (ask->steps != steps)
			deadline = clock_deadline(wait_ms);
		steps = ask->steps;
	}
	answered = ask->answered;
	if (!answered) {
		ask->left = true;
		DL_APPEND(waiting, ask);
	}
	pthread_mutex_unlock(&lock);
	return answered;
}

int folder_ask(struct folder_ask *ask, int64_t wait_ms)
{
	pthread_t thread;
	int r = is_hopeless(ask->path) ? -ETIMEDOUT : 0;

	clock_condition(&ask->changed);
	if (r == 0)
		r = -thread_begin(&thread, STACK_BYTES, ask_run, ask);
	if (r == 0 && !ask_answers(ask, wait_ms)) {
		pthread_detach(thread);
		return -ETIMEDOUT;
	}
	if (r == 0)
		pthread_join(thread, NULL);
	pthread_cond_destroy(&ask->changed);
	if (r < 0)
		ask->drop(ask);
	return r;
}
