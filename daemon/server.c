#include "server.h"
#include "methods/server.h"
#include "../base/clock.h"
#include "../service/log.h"
#include "base/notify.h"
#include "base/loop.h"
#include "config/roots.h"
#include "net/listener.h"
#include "restart/descriptions.h"
#include "restart/inherited.h"
#include "restart/keeping.h"
#include "work/versions/claims.h"
#include "work/tiers/tiers.h"
#include "work/tiers/restore.h"
#include "work/loaders/loader.h"
#include "work/regions/regions.h"
#include "work/jobs/verify.h"
#include "work/versions/versions.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* ---- settling ---- */

static void on_stop_timer(uv_timer_t *timer)
{
	uv_stop(timer->loop);
}

static void stop_listening(struct server *server)
{
	for (size_t i = 0; i < LISTENERS; i++) {
		if (server->listeners[i])
			listener_stop(server->listeners[i]);
	}
}

/* Leaves the loop when the replies have drained. */
static void server_leave(struct server *server)
{
	if (server->net.stopping)
		return;
	stop_listening(server);
	keeping_leave(server->keeping);
	server->net.stopping = true;
	uv_timer_start(&server->stop_timer, on_stop_timer, STOP_DRAIN_MS, 0);
}

void server_settle(struct server *server)
{
	work_settle(&server->work);
	notify_changed(server->notify);
	if (server->begins_anew)
		server_leave(server);
	if (!server->net.stopping)
		return;
	net_finish(&server->net);
	net_settle(&server->net);
	if (server->net.session_count == 0)
		uv_stop(&server->loop);
}

static void on_settle(uv_prepare_t *prepare)
{
	server_settle(prepare->data);
}

/* ---- making and freeing ---- */

/* ---- from open sockets to READY: gpuwmd says READY only once its loop watches the sockets, because a peer that connects to a
 * gpuwmd that does not watch them waits for ever ---- */

static void on_awake(uv_idle_t *idle)
{
	(void)idle; /* that it is active makes the loop turn without waiting */
}

/* After the loop has looked for events: it watches the listeners by then. */
static void on_turned(uv_check_t *check)
{
	struct server *server = check->data;

	uv_check_stop(check);
	uv_idle_stop(&server->serving_soon);
	notify_ready(server->notify);
}

/* Watches the listeners, and sends READY to the service manager after the loop's next turn. If the loop can't watch a
 * listener, calls server_fail. */
static void serving_begin(void *data)
{
	struct server *server = data;
	struct error error;

	for (size_t i = 0; i < LISTENERS; i++) {
		if (server->listeners[i] && listener_start(server->listeners[i], &error) < 0) {
			server_fail(server, &error);
			return;
		}
	}
	start_lines_serving(server);
	restore_begin(&server->work, keeping_found(server->keeping));
	uv_idle_start(&server->serving_soon, on_awake);
	uv_check_start(&server->serving, on_turned);
}

static void grace_over(void *data, bool moves)
{
	struct server *server = data;

	if (moves)
		evictions_again(&server->work);
	else
		versions_free_all_unused(&server->work);
	work_later(&server->work, LATER_ROOM); /* what a worker took again does not come back */
}

/* Each floor gets those below it. */
static void connect_floors(struct server *server)
{
	server->net.loop = server->work.loop = &server->loop;
	server->net.config = server->clients.config = server->work.config = server->config;
	server->net.quota = server->ledger.quota;
	server->net.above = &connections;
	server->net.data = server;
	server->clients.ledger = server->work.ledger = &server->ledger;
	server->clients.net = server->work.net = &server->net;
	server->work.clients = &server->clients;
	server->work.keeping = server->keeping;
	server->loop.data = &server->work;
}

static int make_parts(struct server *server)
{
	bool made = ledger_init(&server->ledger, &server->config->quota) == 0;

	server->keeping = keeping_new(&server->loop, server->config, &server->ledger, &server->instance,
				      grace_over, server);
	server->notify = notify_new(&server->loop, status_line, server);
	server->roots = roots_new();
	connect_floors(server);
	made &= net_init(&server->net) == 0;
	made &= work_init(&server->work) == 0;
	if (!made || !server->keeping || !server->notify || !server->roots)
		return -ENOMEM;
	quota_set_coming(server->ledger.quota, versions_coming, &server->work);
	return 0;
}

int server_new(struct config *config, struct server **ret_server, struct error *error)
{
	struct server *server = calloc(1, sizeof(*server));
	int r;

	if (!server || version_id_new(&server->instance) < 0 || uv_loop_init(&server->loop) < 0) {
		free(server);
		return error_set(error, -ENOMEM, NULL,
				 "gpuwmd can't start: it is out of memory, descriptors or random bytes");
	}
	server->config = config;
	server->started_ms = clock_steady_ms();
	uv_prepare_init(&server->loop, &server->settle);
	uv_idle_init(&server->loop, &server->serving_soon);
	uv_check_init(&server->loop, &server->serving);
	uv_timer_init(&server->loop, &server->stop_timer);
	server->settle.data = server->serving.data = server->stop_timer.data = server;
	uv_prepare_start(&server->settle, on_settle);
	uv_unref((uv_handle_t *)&server->settle);
	r = make_parts(server);
	if (r < 0)
		error_set(error, r, "see RLIMIT_NOFILE, and fs.epoll.max_user_watches (sysctl)",
			  "gpuwmd can't start: it is out of memory, descriptors or epoll watches");
	if (r == 0)
		r = config_apply(server, error);
	if (r < 0) {
		server_free(server);
		return r;
	}
	versions_failed_begin(&server->work);
	*ret_server = server;
	return 0;
}

static void on_give_up(uv_timer_t *timer)
{
	struct keeping *keeping = timer->data;

	if (keeping && descriptions_end_goes_on(keeping_descriptions(keeping)))
		uv_timer_start(timer, on_give_up, STOP_DRAIN_MS, 0);
	else
		uv_stop(timer->loop);
}

static void close_handles(struct server *server)
{
	for (size_t i = 0; i < LISTENERS; i++)
		server->listeners[i] = listener_close(server->listeners[i]);
	net_end(&server->net);
	work_close(&server->work);
	server->roots = roots_free(server->roots);
	net_settle(&server->net); /* the loaders' */
	net_close(&server->net);
	for (size_t i = 0; i < SIGNALS; i++) {
		if (server->signals[i].data)
			uv_close((uv_handle_t *)&server->signals[i], NULL);
	}
	server->notify = notify_free(server->notify);
	if (server->keeping)
		keeping_end(server->keeping);
	uv_close((uv_handle_t *)&server->settle, NULL);
	uv_close((uv_handle_t *)&server->serving_soon, NULL);
	uv_close((uv_handle_t *)&server->serving, NULL);
	uv_close((uv_handle_t *)&server->stop_timer, NULL);
}

struct server *server_free(struct server *server)
{
	uv_timer_t patience;

	if (!server)
		return NULL;
	versions_free_again(&server->work);
	versions_settle(&server->work);
	server->net.stopping = server->work.draining = true;
	close_handles(server);
	/* Descriptors that are being closed come to their end, but not for ever, and so does what is written. */
	uv_timer_init(&server->loop, &patience);
	patience.data = server->keeping;
	uv_timer_start(&patience, on_give_up, STOP_DRAIN_MS, 0);
	uv_unref((uv_handle_t *)&patience);
	uv_run(&server->loop, UV_RUN_DEFAULT);
	uv_close((uv_handle_t *)&patience, NULL);
	uv_run(&server->loop, UV_RUN_NOWAIT);
	if (uv_loop_close(&server->loop) < 0)
		return server;
	work_clear(&server->work);
	keeping_free(server->keeping);
	ledger_clear(&server->ledger);
	net_clear(&server->net);
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

/* The ledger may be that of the last gpuwmd. */
static int begin_adopted(struct server *server, struct error *error)
{
	scrub_begin(server->work.scrub);
	config_warn_budgets(server);
	return regions_begin(&server->work, error);
}

static int take_over(struct server *server, struct inherited *left, struct error *error)
{
	int r;

	notify_extend(EXTEND_SECONDS);
	r = keeping_begin(server->keeping, left, error);
	if (r == 0)
		r = begin_adopted(server, error);
	if (r == 0)
		r = sockets_keep(server, error);
	if (r == 0)
		r = keeping_settle(server->keeping, error);
	inherited_clear(left);
	return r;
}

/* Everything is open. */
static int server_serve(struct server *server, struct error *error)
{
	const bool is_locked = keeping_locked(server->keeping);
	const bool devices_known = keeping_knows_devices(server->keeping) || is_locked;
	int r;
	event_ring_begin(server->ledger.events, (keeping_epoch(server->keeping) - 1) << EVENT_EPOCH_SHIFT);
	lease_begin(server->ledger.registry, (keeping_epoch(server->keeping) - 1) << EVENT_EPOCH_SHIFT);
	server->work.jobs.last_id = (keeping_epoch(server->keeping) - 1) * JOBS_PER_EPOCH;
	r = watch_signals(server, error);
	if (r < 0)
		return r;
	claims_begin_grace(&server->work);
	versions_force_begin(&server->work);
	versions_cache_begin(&server->work);
	versions_failed_begin(&server->work);
	tiers_make_room(&server->work, evictions_make_room);
	server->work.heal = evictions_heal;
	/* The answer to hello has the devices: those of the last gpuwmd, or what the first loader says or fails to. */
	if (devices_known)
		serving_begin(server);
	if (!is_locked)
		loader_pool_start(server->work.loaders, devices_known ? NULL : serving_begin, server);
	idle_arm(&server->work);
	if (!server->failed.code)
		uv_run(&server->loop, UV_RUN_DEFAULT);
	*error = server->failed;
	return error->code;
}

int server_listen(struct server *server, struct inherited *left, struct error *error)
{
	int r = threads_begin(&server->loop, &server->first_work, error);

	return r == 0 ? sockets_open(server, left, error) : r;
}

int server_run(struct server *server, struct inherited *left, struct error *error)
{
	int r = take_over(server, left, error);

	return r < 0 ? r : server_serve(server, error);
}

int server_run_locked(struct server *server, const struct inherited *left, const struct error *why,
		      struct error *error)
{
	int r = threads_begin(&server->loop, &server->first_work, error);

	server->unconfigured = true;
	if (r == 0)
		r = sockets_open_locked(server, left, error);
	if (r == 0) {
		keeping_lock(server->keeping, why);
		r = keeping_settle(server->keeping, error);
	}
	if (r == 0)
		r = begin_adopted(server, error);
	return r < 0 ? r : server_serve(server, error);
}

void server_fail(struct server *server, const struct error *error)
{
	server->failed = *error;
	uv_stop(&server->loop);
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
			"%llu version%s left in the fd store: the next gpuwmd takes %s over; a stopped unit drops "
			"the store (systemd 254 and newer: unless it has FileDescriptorStorePreserve=yes)",
			(unsigned long long)count, count == 1 ? " is" : "s are", count == 1 ? "it" : "them");
}

void server_stop(struct server *server)
{
	struct error error;

	if (server->net.stopping)
		return;
	notify_stopping();
	notify_extend(EXTEND_SECONDS);
	stop_listening(server);
	/* Before the publishes fail: the next gpuwmd has what was ready by then, and says so. */
	net_refuse_stopping(&error);
	for (int kind = 0; kind < WAIT_KINDS; kind++)
		waiters_refuse(&server->clients, (enum wait_kind)kind, &error);
	work_begin_draining(&server->work, &error);
	if (!keeping_stores(server->keeping))
		regions_end_all(&server->work, NULL, &error);
	say_what_stays(server);
	server_leave(server);
}
