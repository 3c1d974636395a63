#include "patience.h"

#include "exit.h"

#include "../../base/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

/* When people begin to wonder. */
#define NOTICE_MS 10000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_t watcher;
static bool is_watched, is_ended;
static const char *watched, *watched_remedy;
static uint64_t limit, beat_ms;

/* exit would wait for the thread that hangs: its destructors and buffers are not needed. */
static void give_up(void)
{
	const enum exit_code code =
		exit_with(EXIT_TIMEOUT, watched_remedy, "the file system of %s has not answered for %.1f s",
			  watched, (double)limit / 1000);

	fflush(stderr);
	_exit(code);
}

static void *patience_run(void *data)
{
	bool is_noted = false;

	(void)data;
	pthread_mutex_lock(&lock);
	while (!is_ended) {
		const uint64_t waited = clock_steady_ms() - beat_ms;

		if (waited >= limit)
			give_up();
		is_noted = is_noted && waited >= NOTICE_MS;
		if (waited >= NOTICE_MS && !is_noted) {
			exit_note(NULL, "it waits for the file system of %s, which does not answer", watched);
			is_noted = true;
		}
		clock_wait(&changed, &lock,
			   clock_deadline((int64_t)(limit - waited < NOTICE_MS ? limit - waited : NOTICE_MS)));
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

void patience_begin(const char *path, uint64_t limit_ms, const char *remedy)
{
	watched = path;
	watched_remedy = remedy;
	limit = limit_ms;
	beat_ms = clock_steady_ms();
	is_ended = false;
	clock_condition(&changed);
	is_watched = pthread_create(&watcher, NULL, patience_run, NULL) == 0;
}

void patience_beat(void)
{
	if (!is_watched)
		return;
	pthread_mutex_lock(&lock);
	beat_ms = clock_steady_ms();
	pthread_mutex_unlock(&lock);
}

void patience_end(void)
{
	if (!is_watched)
		return;
	pthread_mutex_lock(&lock);
	is_ended = true;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
	pthread_join(watcher, NULL);
	pthread_cond_destroy(&changed);
	is_watched = false;
}
