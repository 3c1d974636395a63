/* gpuwm-follow: gpuwmd's events in, settings of the load balancer out. */
#include "options.h"
#include "balancer.h"
#include "fleet.h"
#include "hook.h"
#include "route.h"
#include "source.h"
#include "../service/process.h"
#include "../base/clock.h"
#include "../service/manager.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* ---- the loop ---- */

/* How often the service manager hears that the loop runs: a third of WatchdogSec= in the unit. */
#define ALIVE_MS 60000

struct follow {
	struct options *options;
	struct source source;
	struct balancer balancer;
	struct hook hook;
	bool is_stale; /* gpuwmd has to be asked */
	bool has_looked; /* gpuwmd was asked, at least once */
	bool stopping;
	uint64_t next_check_ms, hook_from_ms;
	char status[160];
	bool ready_told;
};

#define EACH_ROUTE(follow, route)                                                                              \
	for (struct route * (route) = (follow)->options->routes;                                               \
	     (route) < (follow)->options->routes + (follow)->options->route_count; (route)++)

/* ---- what gpuwmd tells ---- */

static void tell_change(void *data, const char *address, enum fleet_change change)
{
	static const char *const words[] = {
		[CHANGE_SERVES] = "gets requests",
		[CHANGE_DRAINS] = "drains: it serves another version",
		[CHANGE_RETURNS] = "gets requests again: nobody else is left",
		[CHANGE_REMOVED] = "is removed: its lease has ended, or it withdrew",
		[CHANGE_MISSED] = "is removed: gpuwmd did not tell of it in time (--keep)",
	};
	const struct route *route = data;

	log_info("%s: %s %s", route->ref, address, words[change]);
}

/* Says that nobody serves the current version. During a swap that lasts for milliseconds. */
static void tell_idle(struct route *route, const struct sightings *sightings)
{
	const size_t others = fleet_count(&route->fleet, SERVER_READY);

	for (size_t i = 0; i < sightings->count; i++) {
		if (sightings->items[i].is_current) {
			route->idle.text[0] = '\0';
			return;
		}
	}
	if (!sightings->version[0])
		log_passing(&route->idle, "%s names no version; requests go on to %zu workers of before",
			    route->ref, others);
	else
		log_passing(
			&route->idle,
			"no worker serves %s@%s yet, which %s names; requests go on to %zu workers of before",
			route->model, sightings->tag, route->ref, others);
}

static int update_route(struct follow *follow, struct route *route, const struct look *look)
{
	const uint64_t now = clock_steady_ms(), keep_ms = follow->options->keep_ms;
	struct sightings sightings;
	int r = sightings_read(look->list, look->clients, route->model, route->name, &sightings);

	if (r < 0)
		return r;
	/* Workers have as long to come back as if gpuwm-follow had been there when gpuwmd was started. */
	if (look->is_other)
		fleet_doubt(&route->fleet, look->uptime_ms < keep_ms ? now + keep_ms - look->uptime_ms : now);
	r = fleet_update(&route->fleet, sightings.items, sightings.count, now, tell_change, route);
	strcpy(route->version, sightings.version);
	strcpy(route->tag, sightings.tag);
	tell_idle(route, &sightings);
	sightings_clear(&sightings);
	return r;
}

static void look_once(struct follow *follow)
{
	struct look look;

	if (source_look(&follow->source, &look) < 0)
		return;
	follow->is_stale = false;
	follow->has_looked = true;
	EACH_ROUTE(follow, route)
	{
		if (update_route(follow, route, &look) < 0) {
			log_error("out of memory for the servers of %s", route->ref);
			follow->is_stale = true;
		}
	}
	look_clear(&look);
}

static bool is_in_doubt(const struct follow *follow)
{
	EACH_ROUTE(follow, route)
	{
		if (fleet_is_in_doubt(&route->fleet))
			return true;
	}
	return false;
}

/* ---- what the load balancer is told ---- */

static bool all_serve(const struct follow *follow)
{
	EACH_ROUTE(follow, route)
	{
		if (route->fleet.count == 0)
			return false;
	}
	return true;
}

/* The hook does not know what the load balancer had before. It is not told at the start that there is nobody, as long as workers may still
 * come. */
static void tell_hook(struct follow *follow)
{
	char *list;

	if (!follow->hook.command || !follow->has_looked ||
	    (clock_steady_ms() < follow->hook_from_ms && !all_serve(follow)))
		return;
	follow->hook_from_ms = 0;
	list = list_text(follow->options->routes, follow->options->route_count);
	if (list)
		hook_want(&follow->hook, list);
	else
		log_error("out of memory for the list of servers");
	hook_go_on(&follow->hook, clock_steady_ms());
}

/* ---- the service manager ---- */

static void tell_status(struct follow *follow)
{
	size_t ready = 0, drain = 0;
	char status[sizeof(follow->status)];

	EACH_ROUTE(follow, route)
	{
		ready += fleet_count(&route->fleet, SERVER_READY);
		drain += fleet_count(&route->fleet, SERVER_DRAIN);
	}
	snprintf(status, sizeof(status), "STATUS=%zu servers get requests, %zu drain%s", ready, drain,
		 follow->source.trouble.text[0] ? "; gpuwmd is away" : "");
	if (strcmp(status, follow->status) != 0 && manager_tell(status) == 0)
		strcpy(follow->status, status);
	if (!follow->ready_told)
		follow->ready_told = manager_tell("READY=1") == 0;
	manager_tell("WATCHDOG=1");
}

/* ---- the loop ---- */

/* check: the time for it has come. */
static void follow_work(struct follow *follow, bool check)
{
	const bool has_haproxy = follow->balancer.socket;

	balancer_begin(&follow->balancer);
	if (check && has_haproxy) {
		EACH_ROUTE(follow, route)
		balancer_adopt(&follow->balancer, route, clock_steady_ms() + follow->options->keep_ms);
	}
	if (follow->is_stale || (check && is_in_doubt(follow))) {
		look_once(follow);
		check = true;
	}
	if (check && has_haproxy && follow->has_looked) {
		EACH_ROUTE(follow, route)
		{
			if (route->adopted)
				balancer_apply(&follow->balancer, route);
		}
		balancer_write(&follow->balancer);
	}
	tell_hook(follow);
	tell_status(follow);
}

static int follow_wait(struct follow *follow, int signals)
{
	struct pollfd polled[] = {{.fd = signals, .events = POLLIN},
				  {.fd = source_fd(&follow->source), .events = POLLIN}};
	uint64_t due = hook_due_ms(&follow->hook), now = clock_steady_ms(), left;
	struct signalfd_siginfo info;

	if (follow->next_check_ms < due)
		due = follow->next_check_ms;
	left = due > now ? due - now : 0;
	if (poll(polled, 2, left < ALIVE_MS ? (int)left : ALIVE_MS) < 0 && errno != EINTR)
		return -errno;
	while (polled[0].revents && read(signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			hook_reap(&follow->hook, clock_steady_ms());
		else
			follow->stopping = true;
	}
	if (polled[1].revents && source_heard(&follow->source))
		follow->is_stale = true;
	return 0;
}

/* Runs until a signal ends it. signals: a signalfd of SIGTERM, SIGINT and SIGCHLD. The load balancer keeps its servers at the end.
 * Returns 0, or a negative errno if the loop can't wait. */
static int follow_run(struct options *options, int signals)
{
	struct follow follow = {
		.options = options,
		.source.socket = options->socket,
		.balancer = {.socket = options->haproxy, .state_file = options->haproxy_state},
		.hook = {.command = options->exec,
			 .timeout_ms = options->exec_timeout_ms,
			 .retry_ms = options->exec_retry_ms},
		.is_stale = true,
		.hook_from_ms = clock_steady_ms() + options->keep_ms,
	};
	int r = 0;

	while (!follow.stopping && r == 0) {
		bool check = clock_steady_ms() >= follow.next_check_ms;

		if (check)
			follow.next_check_ms = clock_steady_ms() + options->check_ms;
		follow_work(&follow, check);
		r = follow_wait(&follow, signals);
	}
	manager_tell("STOPPING=1");
	hook_end(&follow.hook);
	source_close(&follow.source);
	EACH_ROUTE(&follow, route)
	fleet_clear(&route->fleet);
	return r;
}

/* ---- the program ---- */

enum { EXIT_RAN = 0, EXIT_COULD_NOT_START = 1, EXIT_USAGE = 2 };

/* The loop reads them, so that none comes in between. */
static int take_signals(void)
{
	sigset_t ours;

	sigemptyset(&ours);
	sigaddset(&ours, SIGTERM);
	sigaddset(&ours, SIGINT);
	sigaddset(&ours, SIGCHLD);
	signal(SIGCHLD, SIG_DFL); /* an inherited SIG_IGN would hide how the hook ends */
	if (sigprocmask(SIG_BLOCK, &ours, NULL) < 0)
		return -errno;
	return signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
}

int main(int argc, char **argv)
{
	struct options options;
	int r, signals;

	if (streams_open() < 0)
		return EXIT_COULD_NOT_START;
	log_begin("gpuwm-follow");
	abort_line_begin();
	r = options_parse(&options, argc, argv);
	if (r != 0)
		return r < 0 ? EXIT_USAGE : EXIT_RAN;
	signals = take_signals();
	r = signals < 0 ? -errno : follow_run(&options, signals);
	if (r < 0)
		log_error("gpuwm-follow can't wait for events: %s", strerror(-r));
	if (signals >= 0)
		close(signals);
	free(options.routes);
	return r < 0 ? EXIT_COULD_NOT_START : EXIT_RAN;
}
