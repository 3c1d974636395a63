#include "server.h"
#include "clients/audience.h"
#include "work/claims.h"
#include "base/clock.h"
#include "base/complaint.h"
#include "net/crowded.h"
#include "net/discard.h"
#include "net/fair.h"
#include "restart/inherited.h"
#include "restart/keeping.h"
#include "net/listener.h"
#include "work/loader.h"
#include "work/losses.h"
#include "work/mourning.h"
#include "base/notify.h"
#include "base/pace.h"
#include "net/unread.h"
#include "reload.h"
#include "work/revoked.h"
#include "config/roots.h"
#include "work/scrub.h"
#include "serving.h"
#include "status_line.h"
#include "net/session.h"
#include "work/silence.h"
#include "base/threads.h"
#include "work/versions.h"
#include "base/watching.h"
#include "../proto/methods.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* ---- settling ---- */

static void say_goodbyes(struct server *server)
{
	while (server->ended_sessions) {
		struct session *session = server->ended_sessions;

		server->ended_sessions = session->next_ended;
		session_goodbye(session);
	}
}

/* What a user's session does may end it and others. */
static void after_each(void *data)
{
	say_goodbyes(data);
}

static void wake_subscribers(struct server *server)
{
	if (server->events_told == event_last(server->ledger.events))
		return;
	server->events_told = event_last(server->ledger.events);
	audiences_tell(server);
}

static void finish_stopping(struct server *server)
{
	for (struct session *s = server->sessions; s; s = s->next) {
		if (s->kind != SESSION_LOADER && !s->finishing)
			session_finish(s);
	}
}

static void turn_loaders(struct server *server)
{
	if (!server->turn_due)
		return;
	server->turn_due = false;
	loader_pool_turn(server->loaders);
}

static void give_room(struct server *server)
{
	if (!server->room_came)
		return;
	server->room_came = false;
	waiters_wake(server, WAIT_ROOM, NULL);
	server->turn_due = true; /* a context may be kept there */
}

void server_settle(struct server *server)
{
	losses_settle(server);
	give_room(server);
	say_goodbyes(server);
	turn_loaders(server);
	wake_subscribers(server);
	versions_settle(server);
	claims_settle(server);
	notify_changed(server->notify);
	if (!server->stopping)
		return;
	finish_stopping(server);
	say_goodbyes(server);
	if (server->session_count == 0)
		uv_stop(&server->loop);
}

static void on_settle(uv_prepare_t *prepare)
{
	server_settle(prepare->data);
}

/* ---- making and freeing ---- */

static void grace_over(void *data)
{
	versions_free_all_unused(data);
}

static int make_parts(struct server *server)
{
	bool made = ledger_init(&server->ledger, &server->config->quota) == 0;

	server->fair = fair_new(&server->loop, after_each, server);
	server->crowded = crowded_new(&server->loop);
	server->complaints = complaints_new(&server->loop);
	server->discard = discard_new(&server->loop);
	server->unread = unread_new();
	server->connects = pace_new(false);
	server->loaders = loader_pool_new(server);
	server->keeping = keeping_new(&server->loop, server->config, &server->ledger, &server->instance,
				      grace_over, server);
	server->notify = notify_new(&server->loop, status_line, server);
	server->scrub = scrub_new(server);
	server->revoked = revoked_table_new(server);
	server->silence = silence_new(server);
	server->roots = roots_new(&server->loop, server->config);
	return made && server->fair && server->crowded && server->complaints && server->connects &&
			       server->discard && server->unread && server->loaders && server->keeping &&
			       server->notify && server->scrub && server->revoked && server->silence &&
			       server->roots
		       ? 0
		       : -ENOMEM;
}

int server_new(struct config *config, struct server **ret_server, struct error *error)
{
	struct server *server = calloc(1, sizeof(*server));
	int r;

	if (!server || version_id_new(&server->instance) < 0 || uv_loop_init(&server->loop) < 0) {
		free(server);
		return error_set(error, -ENOMEM, NULL, "out of memory, descriptors or random bytes");
	}
	server->loop.data = server;
	server->config = config;
	server->packet.data = server->packet_data;
	server->answer = (struct message_memory){server->answer_data, sizeof(server->answer_data), false};
	server->started_ms = clock_steady_ms();
	job_table_init(&server->jobs);
	waiters_init(server);
	uv_prepare_init(&server->loop, &server->settle);
	serving_init(server);
	uv_timer_init(&server->loop, &server->stop_timer);
	uv_timer_init(&server->loop, &server->claims_timer);
	uv_timer_init(&server->loop, &server->force_timer);
	uv_timer_init(&server->loop, &server->failed_timer);
	server->settle.data = server->stop_timer.data = server->force_timer.data = server;
	server->failed_timer.data = server;
	uv_prepare_start(&server->settle, on_settle);
	uv_unref((uv_handle_t *)&server->settle);
	r = make_parts(server);
	if (r < 0)
		error_set(error, r, "see RLIMIT_NOFILE, and fs.epoll.max_user_watches (sysctl)",
			  "out of memory, descriptors or epoll watches");
	if (r == 0)
		r = config_apply(server, error);
	if (r < 0) {
		server_free(server);
		return r;
	}
	versions_failed_begin(server);
	*ret_server = server;
	return 0;
}

static void on_give_up(uv_timer_t *timer)
{
	uv_stop(timer->loop);
}

/* Descriptors that are being closed come to their end, but not for ever. */
static bool close_loop(struct server *server)
{
	uv_timer_t patience;

	uv_timer_init(&server->loop, &patience);
	uv_timer_start(&patience, on_give_up, STOP_DRAIN_MS, 0);
	uv_unref((uv_handle_t *)&patience);
	uv_run(&server->loop, UV_RUN_DEFAULT);
	uv_close((uv_handle_t *)&patience, NULL);
	uv_run(&server->loop, UV_RUN_NOWAIT);
	return uv_loop_close(&server->loop) == 0;
}

static void close_handles(struct server *server)
{
	for (size_t i = 0; i < LISTENERS; i++)
		server->listeners[i] = listener_close(server->listeners[i]);
	for (struct session *s = server->sessions; s; s = s->next)
		session_end(s);
	say_goodbyes(server);
	mourning_end(server);
	server->revoked = revoked_table_free(server->revoked);
	server->loaders = loader_pool_free(server->loaders);
	server->scrub = scrub_free(server->scrub);
	server->silence = silence_free(server->silence);
	server->roots = roots_free(server->roots);
	say_goodbyes(server); /* the loaders' */
	server->crowded = crowded_free(server->crowded);
	server->discard = discard_free(server->discard);
	server->unread = unread_free(server->unread);
	server->fair = fair_free(server->fair);
	for (size_t i = 0; i < SIGNALS; i++) {
		if (server->signals[i].data)
			uv_close((uv_handle_t *)&server->signals[i], NULL);
	}
	server->notify = notify_free(server->notify);
	complaints_end(server->complaints);
	if (server->keeping)
		keeping_end(server->keeping);
	uv_close((uv_handle_t *)&server->settle, NULL);
	serving_close(server);
	uv_close((uv_handle_t *)&server->stop_timer, NULL);
	uv_close((uv_handle_t *)&server->claims_timer, NULL);
	uv_close((uv_handle_t *)&server->force_timer, NULL);
	uv_close((uv_handle_t *)&server->failed_timer, NULL);
}

struct server *server_free(struct server *server)
{
	if (!server)
		return NULL;
	versions_settle(server);
	server->stopping = server->draining = true;
	close_handles(server);
	if (!close_loop(server))
		return server;
	job_table_clear(&server->jobs);
	keeping_free(server->keeping);
	ledger_clear(&server->ledger);
	pace_free(server->connects);
	complaints_free(server->complaints);
	free(server);
	return NULL;
}

/* ---- running ---- */

static void on_signal(uv_signal_t *signal, int number)
{
	struct error error; /* the log has it */

	if (number == SIGHUP)
		server_reload(signal->data, &error);
	else
		server_stop(signal->data);
}

static int watch_signals(struct server *server, struct error *error)
{
	const int numbers[SIGNALS] = {SIGTERM, SIGINT, SIGHUP};
	int r = 0;

	for (size_t i = 0; r == 0 && i < SIGNALS; i++) {
		r = uv_signal_init(&server->loop, &server->signals[i]);
		if (r < 0)
			break;
		server->signals[i].data = server;
		r = uv_signal_start(&server->signals[i], on_signal, numbers[i]);
	}
	return r < 0 ? watching_failed(r, "its signals", error) : 0;
}

static int open_listeners(struct server *server, struct inherited *left, struct error *error)
{
	const enum session_kind kinds[LISTENERS] = {SESSION_WORKER, SESSION_ADMIN};
	int r = 0;

	for (size_t i = 0; r == 0 && i < LISTENERS; i++)
		r = listener_open(server, kinds[i], left, &server->listeners[i], error);
	return r;
}

/* Sockets of our own go to the store too, so that who connects while gpuwmd restarts waits. */
static int keep_listeners(struct server *server, struct error *error)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < LISTENERS && keeping_stores(server->keeping); i++)
		r = listener_keep(server->listeners[i], error);
	return r;
}

/* hello tells devices: those of the last gpuwmd, or what the first loader says or fails to. */
static void begin_serving(struct server *server)
{
	bool devices_known = server->ledger.devices.count > 0 || keeping_locked(server->keeping);

	if (devices_known)
		serving_begin(server);
	if (!keeping_locked(server->keeping))
		loader_pool_start(server->loaders, devices_known ? NULL : serving_begin);
}

/* The ledger may be that of the last gpuwmd. */
static void adopted(struct server *server)
{
	scrub_begin(server->scrub);
	config_warn_budgets(server);
}

static int open_all(struct server *server, struct inherited *left, struct error *error)
{
	int r = threads_begin(&server->loop, &server->first_work, error);

	if (r == 0)
		r = open_listeners(server, left, error);
	notify_extend(EXTEND_SECONDS);
	if (r == 0)
		r = keeping_begin(server->keeping, left, error);
	if (r == 0)
		adopted(server);
	if (r == 0)
		r = keep_listeners(server, error);
	inherited_clear(left);
	return r;
}

int server_run(struct server *server, struct inherited *left, struct error *error)
{
	int r = open_all(server, left, error);

	if (r < 0)
		return r;
	event_ring_begin(server->ledger.events, (keeping_epoch(server->keeping) - 1) << EVENT_EPOCH_SHIFT);
	lease_begin(server->ledger.registry, (keeping_epoch(server->keeping) - 1) << EVENT_EPOCH_SHIFT);
	server->jobs.last_id = (keeping_epoch(server->keeping) - 1) * JOBS_PER_EPOCH;
	r = watch_signals(server, error);
	if (r < 0)
		return r;
	claims_begin_grace(server);
	versions_force_begin(server);
	versions_failed_begin(server);
	begin_serving(server);
	roots_look(server->roots);
	if (!server->failed.code)
		uv_run(&server->loop, UV_RUN_DEFAULT);
	*error = server->failed;
	return error->code;
}

void server_fail(struct server *server, const struct error *error)
{
	server->failed = *error;
	uv_stop(&server->loop);
}

/* What is on its way into the fd store gets there; after a drain it is retired then. */
static void fail_publishes(struct server *server, const struct error *error)
{
	struct publish *publish = publish_next(server->ledger.publishes, NULL), *next;

	for (; publish; publish = next) {
		next = publish_next(server->ledger.publishes, publish);
		if (!publish->version->storing)
			versions_fail(server, publish, error, NULL);
	}
}

void server_begin_draining(struct server *server, const struct error *why)
{
	struct message_writer w;

	if (server->draining)
		return;
	server->draining = true;
	log_info("%s: no new leases, publishes or loads", why->message);
	event_begin(server->ledger.events, &w, EVENT_DRAINING);
	event_emit(server->ledger.events, &w);
	waiters_refuse(server, WAIT_READY, why);
	waiters_refuse(server, WAIT_CLAIM, why);
	fail_publishes(server, why);
	for (struct job *job = server->jobs.first; job; job = job->next)
		job_cancel(server, job, why);
	server->turn_due = true; /* no context is kept any more */
}

static void on_stop_timer(uv_timer_t *timer)
{
	uv_stop(timer->loop);
}

/* Whether the service manager restarts or stops its unit can't be told from the signal. */
static void say_what_stays(const struct server *server)
{
	struct version *version = NULL;
	uint64_t count = 0;

	/* What is building or checking fails now, and what is freed leaves the store. */
	while ((version = registry_next_version(server->ledger.registry, NULL, version)))
		count += !version->freeing &&
			 (version->state == VERSION_READY || version->state == VERSION_RETIRING);
	if (count > 0 && keeping_stores(server->keeping))
		log_info(
			"%llu version%s left in the fd store: a restart finds them again, a stopped unit drops them "
			"(systemd 254 and newer: unless it has FileDescriptorStorePreserve=yes)",
			(unsigned long long)count, count == 1 ? " is" : "s are");
}

int server_refuse_stopping(struct error *error)
{
	return error_set(error, -ECONNRESET, "connect again, and ask the next one", "gpuwmd is stopping");
}

void server_stop(struct server *server)
{
	struct error error;

	if (server->stopping)
		return;
	notify_stopping();
	notify_extend(EXTEND_SECONDS);
	for (size_t i = 0; i < LISTENERS; i++) {
		if (server->listeners[i])
			listener_stop(server->listeners[i]);
	}
	/* Before the publishes fail: the next gpuwmd has what was ready by then, and says so. */
	server_refuse_stopping(&error);
	for (int kind = 0; kind < WAIT_KINDS; kind++)
		waiters_refuse(server, (enum wait_kind)kind, &error);
	server_begin_draining(server, &error);
	say_what_stays(server);
	server->stopping = true;
	uv_timer_start(&server->stop_timer, on_stop_timer, STOP_DRAIN_MS, 0);
}
