#include "command.h"

#include "exit.h"

#include "../../base/clock.h"
#include "../../base/limits.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended;
static pthread_t watcher;
static bool is_watched, is_ended;
static int64_t end_ms;
static const char *change_in_doubt;

static void *watch_run(void *user_data)
{
	const struct arguments *arguments = user_data;

	pthread_mutex_lock(&lock);
	while (!is_ended && clock_left(end_ms) != 0)
		clock_wait(&ended, &lock, end_ms);
	if (!is_ended)
		exit(exit_with(
			EXIT_TIMEOUT,
			change_in_doubt
				? change_in_doubt
				: "it hangs, is stopped or has too much to do: see its log, and gpuwmctl doctor",
			"time ran out after %.1f s: gpuwmd does not answer",
			(double)arguments->limit.value / 1000));
	pthread_mutex_unlock(&lock);
	return NULL;
}

int64_t bound_deadline(int64_t deadline_ms)
{
	const int64_t end = clock_later(deadline_ms, clock_deadline(0));

	return end > INT64_MAX - ANSWER_SLACK_MS ? INT64_MAX : end + ANSWER_SLACK_MS;
}

int bound_begin(const struct arguments *arguments, const char *in_doubt)
{
	int r;

	if (arguments->deadline_ms < 0)
		return EXIT_DONE;
	end_ms = bound_deadline(arguments->deadline_ms);
	is_ended = false;
	change_in_doubt = in_doubt;
	clock_condition(&ended);
	r = pthread_create(&watcher, NULL, watch_run, (void *)arguments);
	is_watched = r == 0;
	return r == 0 ? EXIT_DONE
		      : (int)exit_with(EXIT_FAILED, NULL, "no thread can be made that ends the wait: %s",
				       strerror(r));
}

void bound_end(void)
{
	if (!is_watched)
		return;
	pthread_mutex_lock(&lock);
	is_ended = true;
	pthread_cond_signal(&ended);
	pthread_mutex_unlock(&lock);
	pthread_join(watcher, NULL);
	pthread_cond_destroy(&ended);
	is_watched = false;
}
