#include "loader_internal.h"
#include "../../../base/clock.h"
#include "../jobs/verify.h"
#include "../versions/publishers.h"
#include "../../net/session.h"
#include "../../../proto/wire/messages.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

static void bury(struct loader *l, const char *status);

struct job *loader_job(const struct loader *loader)
{
	return loader->job;
}

/* ---- starting ---- */

static void spoke(struct loader_pool *pool)
{
	void (*ready)(void *) = pool->ready;

	pool->ready = NULL;
	if (ready)
		ready(pool->ready_data);
}

/* The loop's clock lags behind the steady one, so the time to start counts as come. */
static void on_retry(uv_timer_t *timer)
{
	struct loader_pool *pool = timer->data;

	pool->retry_at_ms = 0;
	work_later(pool->work, LATER_TURN);
}

static void retry_later(struct loader_pool *pool, uint64_t at_ms)
{
	uint64_t now = clock_steady_ms();

	pool->retry_at_ms = at_ms;
	uv_timer_start(pool->retry, on_retry, at_ms > now ? at_ms - now : 0, 0);
}

/* One more start came to nothing. */
static void start_failed(struct loader_pool *pool, const struct error *reason)
{
	struct work *work = pool->work;
	struct error error;
	struct job *job;

	if (pool->failures++ == 0)
		log_error("%s%s%s", reason->message, reason->detail[0] ? ": " : "", reason->detail);
	pool->failure = *reason;
	retry_later(pool, clock_steady_ms() + LOADER_RETRY_MS);
	spoke(pool);
	if (pool->failures < LOADER_RETRIES_MAX)
		return;
	error_set(&error, -EIO, reason->detail, "no loader could be started, %u times in a row: %s",
		  pool->failures, reason->message);
	while ((job = job_queued(&work->jobs, NULL, true)))
		job_end(work, job, &error);
	while ((job = job_awaiting(&work->jobs)))
		job_end(work, job, &error);
}

void loader_handle_closed(uv_handle_t *handle)
{
	struct loader *l = handle->data;

	if (--l->handles > 0)
		return;
	if (l->pidfd >= 0)
		close(l->pidfd);
	free(l);
}

static void close_handles(struct loader *l)
{
	l->kind->close(l);
	uv_close((uv_handle_t *)&l->timer, loader_handle_closed);
}

static struct loader *loader_new(struct loader_pool *pool)
{
	struct loader *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->pool = pool;
	l->kind = pool->work->config->loader_socket[0] ? &loader_connected : &loader_spawned;
	l->pidfd = -1;
	l->started_ms = clock_steady_ms();
	l->timer.data = l;
	l->handles = 1;
	l->was_starting = true;
	uv_timer_init(pool->work->loop, &l->timer);
	return l;
}

/* On success the loader is in the pool. */
static int launch(struct loader_pool *pool, struct error *error)
{
	struct loader *l = loader_new(pool);
	int sock, r;

	if (!l)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	r = l->kind->begin(l, &sock, error);
	if (r < 0) {
		close_handles(l);
		return r;
	}
	LL_PREPEND(pool->first, l);
	uv_timer_start(&l->timer, loader_on_timer, pool->work->config->loader_start_ms, 0);
	if (session_new(pool->work->net, sock, SESSION_LOADER, &l->session) == 0) {
		l->session->client->loader = l;
		return 0;
	}
	l->kind->kill(l);
	if (!l->mourned) /* nobody is woken: it had nothing, and who waits for room may be who starts it */
		bury(l, "");
	return 0;
}

bool loader_start(struct loader_pool *pool)
{
	struct error error;
	int r = launch(pool, &error);

	if (r < 0)
		start_failed(pool, &error);
	return r == 0;
}

/* ---- the end of a process ---- */

static void loader_end_job(struct loader *l, const struct error *error)
{
	struct job *job = l->job;

	/* The end of a process may be known before its last words are read. A checker says that it begins, and then takes what the
	 * publisher handed in. */
	if (l->unbegun && !job->cancelled && job->given_back < LOAD_AGAIN_MAX &&
	    (job->kind != JOB_CHECK || hand_in_is_unread(job))) {
		log_warning("job %llu goes to another loader: gpuwm-loader (pid %d) did not begin it: %s",
			    (unsigned long long)job->id, l->pid, error->message);
		job_again(l->pool->work, job);
	} else {
		job_end(l->pool->work, job, error);
	}
	l->job = NULL;
}

/* What its death means, once: its state is one of the living before. */
static void conclude(struct loader *l, const struct error *error)
{
	struct loader_pool *pool = l->pool;

	if (l->job) {
		loader_end_job(l, error);
	} else if (l->copy) {
		ipc_copy_lose(l->copy, error);
		l->copy = NULL;
		work_later(pool->work, LATER_COPIES); /* copies_settle tells whoever has a lease of it */
	} else if (l->state == LOADER_HOLDING) {
		log_warning("gpuwm-loader (pid %d), whose copy had ended, is gone: %s", l->pid, error->message);
	} else if (l->was_starting) {
		l->was_starting = false;
		start_failed(pool, error);
	} else if (l->keeps) {
		loader_warm_failed(l, error);
	} else if (!pool->work->net->stopping) {
		log_warning("the standby loader is gone: %s", error->message);
		retry_later(pool, l->started_ms + LOADER_RETRY_MS);
	}
}

static bool is_over(const struct loader *l)
{
	return l->state == LOADER_LEAVING || l->state == LOADER_KILLED || l->state == LOADER_FORGOTTEN;
}

static void drop_kept(struct loader *l)
{
	while (l->kept) {
		struct kept *kept = l->kept;

		l->kept = kept->next;
		shared_charge_drop(kept->shared);
		free(kept);
	}
}

static void part_from_session(struct loader *l)
{
	if (!l->session)
		return;
	l->session->client->loader = NULL;
	session_end(l->session);
	l->session = NULL;
}

/* Frees it. */
static void bury(struct loader *l, const char *status)
{
	struct error error;

	if (l->state == LOADER_CANCELLING)
		error_set(&error, -ECANCELED, NULL, "cancelled");
	else if (l->was_starting)
		error_set(&error, -EIO, l->kind->log, "gpuwm-loader ended before it said hello%s", status);
	else
		error_set(&error, -EIO, l->kind->log, "gpuwm-loader died%s", status);
	part_from_session(l);
	if (!is_over(l))
		conclude(l, &error);
	drop_kept(l);
	LL_DELETE(l->pool->first, l);
	close_handles(l);
}

void loader_gone(struct loader *l, const char *status)
{
	struct loader_pool *pool = l->pool;

	bury(l, status);
	waiters_wake(pool->work->clients, WAIT_ROOM, NULL);
	work_later(pool->work, LATER_MOVES);
	work_later(pool->work, LATER_REPORT);
	work_later(pool->work, LATER_TURN);
}

/* A process that the kernel does not let go is no longer waited for. */
void loader_kill(struct loader *l, const struct error *error)
{
	l->kind->kill(l);
	if (!is_over(l))
		conclude(l, error);
	l->state = LOADER_KILLED;
	part_from_session(l);
	if (!l->mourned) {
		loader_gone(l, "");
		return;
	}
	uv_timer_start(&l->timer, loader_on_timer, LOADER_KILL_MS, 0);
	work_later(l->pool->work, LATER_TURN);
}

/* Its job ends with this error even if no loader has begun it: another loader would not do better. */
static void kill_with_job(struct loader *l, const struct error *error)
{
	l->unbegun = false;
	loader_kill(l, error);
}

/* 0: it may take any time. A verify that works a hundredth of the time says something a hundredth as often. */
static uint64_t stall_ms(const struct loader *l)
{
	const struct config *config = l->pool->work->config;
	const struct verify_job *verify = verify_job_of(l->job);

	if (l->job->kind == JOB_LOAD || l->job->kind == JOB_MOVE)
		return config->load_stall_ms;
	return verify && verify->permille ? config->check_stall_ms * 1000 / verify->permille
					  : config->check_stall_ms;
}

static void stall_error(const struct loader *l, struct error *error)
{
	const bool checks = l->job->kind != JOB_REGION && l->job->kind != JOB_HOLD;
	const char *who = checks ? "the checker" : "gpuwm-loader";
	unsigned long long ms = stall_ms(l);

	if (l->job->kind == JOB_LOAD || l->job->kind == JOB_MOVE)
		error_set(error, -ETIMEDOUT, "load_stall_ms in [limits] of gpuwmd's configuration changes it",
			  "the %s hangs: no progress for %llu ms while %.*s", job_kind_name(l->job->kind), ms,
			  JOB_PHASE_NAME_BYTES, l->job->phase);
	else
		error_set(error, -ETIMEDOUT, "check_stall_ms in [limits] of gpuwmd's configuration changes it",
			  "%s hangs: no progress for %llu ms", who, ms);
}

static uint64_t silent_ms(const struct loader *l)
{
	return clock_steady_ms() - l->job->watched_ms;
}

/* One that keeps contexts: its driver may hang, so it has to begin its job soon (KEEP_BEGIN_MS). */
static bool is_to_begin(const struct loader *l)
{
	return l->unbegun && l->keeps;
}

/* The timer of a busy one that has begun is for this alone. */
static void loader_watch_stall(struct loader *l)
{
	uint64_t allowed = stall_ms(l), silent = silent_ms(l);

	if (allowed > 0)
		uv_timer_start(&l->timer, loader_on_timer, silent < allowed ? allowed - silent : 0, 0);
	else
		uv_timer_stop(&l->timer);
}

static void check_stall(struct loader *l)
{
	struct error error;

	/* The time that storing takes is gpuwmd's own, and has its own limit. */
	if (job_is_storing(l->pool->work, l->job) || loader_waits_for_room(l))
		l->job->watched_ms = clock_steady_ms();
	if (silent_ms(l) < stall_ms(l)) {
		loader_watch_stall(l);
		return;
	}
	stall_error(l, &error);
	kill_with_job(l, &error);
}

static void check_begun(struct loader *l)
{
	struct error error;

	error_set(&error, -ETIMEDOUT, NULL, "gpuwm-loader (pid %d) said nothing for %llu ms while it %s",
		  l->pid, l->job ? KEEP_BEGIN_MS : (unsigned long long)l->pool->work->config->loader_start_ms,
		  l->job ? "was to begin a job" : "made CUDA contexts");
	loader_kill(l, &error);
}

void loader_on_timer(uv_timer_t *timer)
{
	struct loader *l = timer->data;
	struct error error;

	switch (l->state) {
	case LOADER_STARTING:
		error_set(&error, -ETIMEDOUT,
			  "loader_start_ms in [limits] of gpuwmd's configuration changes it",
			  "gpuwm-loader did not say hello within %llu ms",
			  (unsigned long long)l->pool->work->config->loader_start_ms);
		loader_kill(l, &error);
		return;
	case LOADER_BUSY:
		if (is_to_begin(l))
			check_begun(l);
		else
			check_stall(l);
		return;
	case LOADER_WARMING:
		check_begun(l);
		return;
	case LOADER_WARM:
		loader_dismiss(l);
		return;
	case LOADER_KILLED:
		l->state = LOADER_FORGOTTEN;
		log_warning("gpuwm-loader (pid %d) hangs in the kernel and can't be killed; it is forgotten%s",
			    l->pid, l->kept ? ", and what it may hold stays charged until it is gone" : "");
		work_later(l->pool->work, LATER_TURN);
		return;
	case LOADER_CANCELLING:
		error_set(&error, -ECANCELED, NULL, "cancelled");
		loader_kill(l, &error);
		return;
	case LOADER_ORPHAN:
		error_set(&error, -EIO, l->kind->log,
			  "gpuwm-loader closed its connection in the middle of its job");
		loader_kill(l, &error);
		return;
	case LOADER_LEAVING:
		loader_kill(l, NULL);
		return;
	case LOADER_STANDBY:
	case LOADER_HOLDING:
	case LOADER_FORGOTTEN:
		return;
	}
}

/* ---- jobs ---- */

void loader_cancel(struct loader *l)
{
	struct message_writer w;

	if (l->state != LOADER_BUSY)
		return;
	l->state = LOADER_CANCELLING;
	uv_timer_start(&l->timer, loader_on_timer, LOADER_KILL_MS, 0);
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, form_job_cancel.name);
	loader_notify(l, &w, &(struct parcel){0});
}

void loader_fail(struct loader *l, const struct error *error)
{
	if (l->job)
		kill_with_job(l, error);
}

void loader_watch(struct loader *l)
{
	if (l->state == LOADER_BUSY && l->job->watched_ms && !is_to_begin(l))
		loader_watch_stall(l);
}

/* ---- what its connection says ---- */

int loader_introduce(struct loader *l, uint64_t pid, int pidfd)
{
	l->pid = (int)pid;
	if (pidfd < 0)
		return 0;
	if (!l->mourned)
		return loader_mourn(l, pidfd);
	close(pidfd);
	return 0;
}

void loader_is_standby(struct loader *l)
{
	if (l->state != LOADER_STARTING)
		return;
	uv_timer_stop(&l->timer);
	l->state = LOADER_STANDBY;
	l->was_starting = false;
	l->pool->failures = 0;
	spoke(l->pool);
	work_later(l->pool->work, LATER_TURN);
}

void loader_has_begun(struct loader *l)
{
	bool was_to_begin = is_to_begin(l);

	if (l->unbegun)
		job_has_begun(l->job);
	l->unbegun = false;
	if (was_to_begin)
		loader_watch(l); /* the timer was for the beginning */
}

void loader_is_leaving(struct loader *l)
{
	l->job = NULL;
	l->state = LOADER_LEAVING;
	uv_timer_start(&l->timer, loader_on_timer, LOADER_EXIT_MS, 0);
}

void loader_dismiss(struct loader *l)
{
	loader_is_leaving(l);
	part_from_session(l);
	if (!l->mourned)
		loader_gone(l, "");
}

void loader_lost(struct loader *l)
{
	l->session = NULL;
	if (!l->mourned) {
		loader_gone(l, "");
		return;
	}
	if (is_over(l))
		return;
	if (l->state != LOADER_CANCELLING)
		l->state = LOADER_ORPHAN;
	uv_timer_start(&l->timer, loader_on_timer, LOADER_STATUS_MS, 0);
}

void loader_discard(struct loader *l)
{
	l->kind->kill(l);
	part_from_session(l);
	drop_kept(l);
	LL_DELETE(l->pool->first, l);
	close_handles(l);
}
