#include "loop.h"
#include "../../service/process.h"
#include "../../base/errors.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* libuv's own default. What is slow on the pool waits for the kernel or the service manager, not for a processor. */
#define POOL_THREADS 4
#define POOL_THREADS_TEXT "4"
#define GONE_MS 1000 /* a thread that was joined is gone within microseconds, unless the machine is very busy */

/* One of those that only show that they can be made. */
struct trial {
	pthread_t thread;
	pthread_mutex_t *gate; /* open: the trial is over */
	pid_t id;
};

static void *wait_for_end(void *data)
{
	struct trial *trial = data;

	trial->id = (pid_t)syscall(SYS_gettid); /* glibc has it, and tgkill, since 2.30 */
	pthread_mutex_lock(trial->gate);
	pthread_mutex_unlock(trial->gate);
	return NULL;
}

/* The kernel counts a thread against the limits for a moment after it was joined. */
static void end_trial(const struct trial *trial)
{
	pthread_join(trial->thread, NULL);
	for (int waited_ms = 0; waited_ms < GONE_MS && syscall(SYS_tgkill, getpid(), trial->id, 0) == 0;
	     waited_ms++)
		poll(NULL, 0, 1);
}

/* All of them at the same time, with the stacks that libuv gives its own. */
static int try_threads(unsigned *ret_made)
{
	pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
	struct trial trials[POOL_THREADS];
	unsigned made = 0;
	int r = 0;

	pthread_mutex_lock(&gate);
	while (r == 0 && made < POOL_THREADS) {
		trials[made].gate = &gate;
		r = pthread_create(&trials[made].thread, NULL, wait_for_end, &trials[made]);
		made += r == 0;
	}
	pthread_mutex_unlock(&gate);
	for (unsigned i = 0; i < made; i++)
		end_trial(&trials[i]);
	*ret_made = made;
	return -r;
}

static void do_nothing(uv_work_t *work)
{
	(void)work;
}

static void on_done(uv_work_t *work, int status)
{
	(void)work;
	(void)status;
}

int threads_begin(uv_loop_t *loop, uv_work_t *work, struct error *error)
{
	char limits[TEXT_BYTES_MAX + 1];
	unsigned made = 0;
	int r = setenv("UV_THREADPOOL_SIZE", POOL_THREADS_TEXT, 1) < 0 ? -ENOMEM : try_threads(&made);

	if (r < 0) {
		task_limits_explain(limits, sizeof(limits));
		return error_set(error, r, limits, "gpuwmd needs %d threads and could make %u: %s",
				 POOL_THREADS, made, strerror(-r));
	}
	r = uv_queue_work(loop, work, do_nothing, on_done);
	return r < 0 ? error_set(error, r, NULL, "gpuwmd could not use its threads: %s", strerror(-r)) : 0;
}

/* ---- watches ---- */

int watching_failed(int code, const char *what, struct error *error)
{
	if (code == -ENOSPC)
		return error_set(
			error, -ENOMEM, "raise fs.epoll.max_user_watches (sysctl -w)",
			"gpuwmd could not watch %s: its user has all the epoll watches that it may have", what);
	return error_set(error, code, NULL, "gpuwmd could not watch %s: %s", what, strerror(-code));
}
