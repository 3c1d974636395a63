#include "server.h"
#include "clock.h"
#include "listener.h"
#include "loader.h"
#include "mourning.h"
#include "session.h"
#include "unread.h"
#include "versions.h"
#include "../proto/methods.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>

/* ---- settling ---- */

static void say_goodbyes(struct server *server)
{
	while (server->ended_sessions) {
		struct session *session = server->ended_sessions;

		server->ended_sessions = session->next_ended;
		session_goodbye(session);
	}
}

static void tell_events(struct server *server)
{
	server->events_told = event_last(server->events);
	for (struct session *s = server->sessions; s; s = s->next) {
		if (s->subscribed)
			session_tell_events(s);
	}
}

static void finish_stopping(struct server *server)
{
	for (struct session *s = server->sessions; s; s = s->next) {
		if (s->kind != SESSION_LOADER && !s->finishing)
			session_finish(s);
	}
}

void server_settle(struct server *server)
{
	while (server->ended_sessions || server->events_told != event_last(server->events)) {
		say_goodbyes(server);
		if (server->events_told != event_last(server->events))
			tell_events(server);
	}
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

static int set_budgets(struct server *server, struct error *error)
{
	const struct config *config = server->config;
	int r = 0;

	for (size_t i = 0; r == 0 && i < config->budget_count; i++)
		r = device_table_budget(&server->devices, config->budgets[i].device, config->budgets[i].bytes,
					config->budgets[i].percent);
	return r < 0 ? error_set(error, r, "[budget] of the configuration", "a budget was not taken: %s",
				 strerror(-r))
		     : 0;
}

static void find_publish_group(struct server *server)
{
	const char *name = server->config->publish_group;
	/* cppcheck-suppress getgrnamCalled ; the loop has not begun */
	const struct group *group = name[0] ? getgrnam(name) : NULL;

	server->has_publish_group = group != NULL;
	if (group)
		server->publish_group = group->gr_gid;
	else if (name[0])
		log_info("there is no group %s: root, gpuwmd's own user and operators may publish", name);
}

static int make_parts(struct server *server)
{
	server->registry = registry_new();
	server->publishes = publish_table_new();
	server->quota = quota_new(&server->config->quota);
	server->events = event_ring_new();
	server->unread = unread_new(&server->loop);
	server->loaders = loader_pool_new(server);
	return server->registry && server->publishes && server->quota && server->events && server->unread &&
			       server->loaders
		       ? 0
		       : -ENOMEM;
}

int server_new(const struct config *config, struct server **ret_server, struct error *error)
{
	struct server *server = calloc(1, sizeof(*server));
	int r;

	if (!server || uv_loop_init(&server->loop) < 0) {
		free(server);
		return error_set(error, -ENOMEM, NULL, "out of memory or descriptors");
	}
	server->loop.data = server;
	server->config = config;
	server->packet.data = server->packet_data;
	server->started_ms = clock_steady_ms();
	job_table_init(&server->jobs);
	uv_prepare_init(&server->loop, &server->settle);
	uv_timer_init(&server->loop, &server->stop_timer);
	server->settle.data = server->stop_timer.data = server;
	uv_prepare_start(&server->settle, on_settle);
	uv_unref((uv_handle_t *)&server->settle);
	r = make_parts(server);
	if (r < 0)
		error_set(error, r, NULL, "out of memory or descriptors");
	if (r == 0)
		r = set_budgets(server, error);
	if (r == 0 && version_id_new(&server->instance) < 0)
		r = error_set(error, -EIO, NULL, "the kernel gave no random bytes");
	if (r < 0) {
		server_free(server);
		return r;
	}
	find_publish_group(server);
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
	server->loaders = loader_pool_free(server->loaders);
	say_goodbyes(server); /* the loaders' */
	server->unread = unread_free(server->unread);
	for (size_t i = 0; i < 2; i++) {
		if (server->signals[i].data)
			uv_close((uv_handle_t *)&server->signals[i], NULL);
	}
	uv_close((uv_handle_t *)&server->settle, NULL);
	uv_close((uv_handle_t *)&server->stop_timer, NULL);
}

struct server *server_free(struct server *server)
{
	if (!server)
		return NULL;
	server->stopping = server->draining = true;
	close_handles(server);
	/* What is still being closed uses the ledger: it is left to the kernel then. */
	if (!close_loop(server))
		return NULL;
	job_table_clear(&server->jobs);
	publish_table_free(server->publishes);
	registry_free(server->registry);
	event_ring_free(server->events);
	device_table_clear(&server->devices);
	quota_free(server->quota);
	free(server);
	return NULL;
}

/* ---- running ---- */

/* The first loader has spoken, or failed: hello can tell devices. */
static void on_ready(struct server *server)
{
	for (size_t i = 0; i < LISTENERS; i++) {
		if (server->listeners[i] && listener_start(server->listeners[i]) < 0)
			log_error("a socket could not be watched");
	}
	sd_notify(0, "READY=1");
}

static void on_signal(uv_signal_t *signal, int number)
{
	(void)number;
	server_stop(signal->data);
}

static void watch_signals(struct server *server)
{
	const int numbers[2] = {SIGTERM, SIGINT};

	for (size_t i = 0; i < 2; i++) {
		uv_signal_init(&server->loop, &server->signals[i]);
		server->signals[i].data = server;
		uv_signal_start(&server->signals[i], on_signal, numbers[i]);
	}
}

int server_run(struct server *server, struct error *error)
{
	const enum session_kind kinds[LISTENERS] = {SESSION_WORKER, SESSION_ADMIN};
	int r = 0;

	for (size_t i = 0; r == 0 && i < LISTENERS; i++)
		r = listener_open(server, kinds[i], &server->listeners[i], error);
	if (r < 0)
		return r;
	sd_listen_fds(1); /* what was passed is taken: no child shall see it */
	watch_signals(server);
	loader_pool_start(server->loaders, on_ready);
	uv_run(&server->loop, UV_RUN_DEFAULT);
	return 0;
}

void server_begin_draining(struct server *server, const char *why)
{
	struct publish *publish;
	struct message_writer w;
	struct error error;

	if (server->draining)
		return;
	server->draining = true;
	log_info("%s: no new leases, publishes or loads", why);
	event_begin(server->events, &w, EVENT_DRAINING);
	event_emit(server->events, &w);
	error_set(&error, -ESHUTDOWN, NULL, "gpuwmd is %s", why);
	waiters_refuse(server, WAIT_READY, &error);
	while ((publish = publish_next(server->publishes, NULL)))
		versions_fail(server, publish, &error, NULL);
	for (struct job *job = server->jobs.first; job; job = job->next)
		job_cancel(server, job, &error);
}

static void on_stop_timer(uv_timer_t *timer)
{
	uv_stop(timer->loop);
}

void server_stop(struct server *server)
{
	struct error error;

	if (server->stopping)
		return;
	sd_notify(0, "STOPPING=1");
	server_begin_draining(server, "stopping");
	server->stopping = true;
	error_set(&error, -ESHUTDOWN, NULL, "gpuwmd is stopping");
	for (int kind = 0; kind < WAIT_KINDS; kind++)
		waiters_refuse(server, (enum wait_kind)kind, &error);
	uv_timer_start(&server->stop_timer, on_stop_timer, STOP_DRAIN_MS, 0);
}
