#include "keeper.h"
#include "child.h"
#include "../service/log.h"
#include "../base/clock.h"
#include "../service/manager.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_MS 10000

int log_allowed(struct log_limit *limit, uint64_t now_ms, unsigned *ret_left_out)
{
	if (now_ms < limit->next_ms) {
		limit->left_out++;
		return false;
	}
	*ret_left_out = limit->left_out;
	*limit = (struct log_limit){.next_ms = now_ms + LIMIT_MS};
	return true;
}

void keeper_complain(struct keeper *k, enum complaint kind, const char *format, ...)
{
	char text[512];
	unsigned left_out;
	va_list arguments;

	if (!log_allowed(&k->limits[kind], clock_steady_ms(), &left_out))
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (left_out > 0)
		log_warning("%s (and %u more of the kind before)", text, left_out);
	else
		log_warning("%s", text);
}

/* ---- starting and ending ---- */

static void start_program(struct keeper *k)
{
	uint64_t watchdog_us = k->options->watchdog_ms * 1000;
	struct environment environment;
	pid_t pid = 0;
	int r = environment_make(&environment, k->environment, k->inbox.path, &k->store, watchdog_us,
				 take_over_is_open(&k->take_over));

	if (r == 0) {
		r = pid = child_start(k->options->command, &environment, &k->store);
		environment_clear(&environment);
	}
	if (r < 0) {
		log_error("%s can't be started: %s", k->name, strerror(-r));
		k->deadline_ms = clock_steady_ms() + RESTART_DELAY_MS + restart_delay(&k->restart, 0);
		return;
	}
	k->child = pid;
	/* What was refused of the last program's descriptors does not concern the new one. */
	k->answer = (struct store_answer){0};
	k->starts++;
	k->phase = PHASE_STARTING;
	k->deadline_ms = k->options->start_ms ? clock_steady_ms() + k->options->start_ms : 0;
	k->ready_since_ms = 0;
	log_info("%s is started (process %d) with %zu stored descriptors", k->name, (int)pid, k->store.count);
}

void keeper_stop_child(struct keeper *k)
{
	ready_file_set(k->options->ready_file, false);
	/* A stopped process can't end, so SIGCONT is needed. It comes first because it also undoes
	 * the SIGSTOP by which a leak checker or debugger looks at a process that ends. */
	kill(k->child, SIGCONT);
	kill(k->child, SIGTERM);
	if (k->phase == PHASE_STARTING || k->phase == PHASE_READY) {
		k->phase = PHASE_STOPPING;
		k->deadline_ms = clock_steady_ms() + k->options->stop_ms;
	}
}

void keeper_abort(struct keeper *k, const char *why)
{
	log_error("%s %s: SIGABRT", k->name, why);
	kill(k->child, SIGCONT);
	kill(k->child, SIGABRT);
	k->phase = PHASE_ABORTING;
	k->deadline_ms = clock_steady_ms() + ABORT_MS;
}

static void kill_child(struct keeper *k, const char *why)
{
	log_error("%s %s: SIGKILL", k->name, why);
	kill(k->child, SIGKILL);
	k->phase = PHASE_KILLED;
	k->deadline_ms = 0;
}

static void log_end(const struct keeper *k, const siginfo_t *end, const char *next)
{
	if (end->si_code == CLD_EXITED)
		log_info("%s ended with status %d%s", k->name, end->si_status, next);
	else
		log_warning("%s was ended by signal %d (%s)%s", k->name, end->si_status,
			    strsignal(end->si_status), next);
}

static void start_after(struct keeper *k, uint64_t delay_ms)
{
	k->phase = PHASE_WAITING;
	k->deadline_ms = clock_steady_ms() + delay_ms;
	if (delay_ms == 0)
		start_program(k);
}

void keeper_start_anew(struct keeper *k)
{
	if (k->stop) {
		k->phase = PHASE_OVER;
		return;
	}
	restart_reset(&k->restart);
	start_after(k, 0);
}

static void on_end(struct keeper *k, const siginfo_t *end)
{
	char next[64] = ": it is started again at once";
	uint64_t delay;

	k->child = 0;
	ready_file_set(k->options->ready_file, false);
	if (succession_wants_end(k)) {
		log_end(k, end, "");
		succession_on_end(k);
		return;
	}
	if (k->stop) {
		k->phase = PHASE_OVER;
		log_end(k, end, "");
		return;
	}
	/* If the first start failed and nothing is stored, the keeper ends: nothing is lost, and trying again would only hide a
	 * wrong command line. */
	if (k->starts == 1 && !k->was_ready && k->store.count == 0 && end->si_code == CLD_EXITED) {
		k->phase = PHASE_OVER;
		k->exit_status = end->si_status;
		log_end(k, end, " before it was ready: gpuwm-keeper ends too");
		return;
	}
	if (k->upgrade)
		restart_reset(&k->restart);
	k->upgrade = false;
	delay = restart_delay(&k->restart, k->ready_since_ms ? clock_steady_ms() - k->ready_since_ms : 0);
	if (delay > 0)
		snprintf(next, sizeof(next), ": it is started again in %llu ms", (unsigned long long)delay);
	log_end(k, end, next);
	start_after(k, delay);
}

/* Reaps every child: as PID 1 and as a subreaper, the keeper inherits orphans. */
static void reap(struct keeper *k)
{
	siginfo_t end = {0};

	while (k->phase != PHASE_OVER && waitid(P_ALL, 0, &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       end.si_pid != 0) {
		if (end.si_pid == k->child)
			keeper_listen(k); /* what the program said before it died counts */
		waitid(P_PID, (id_t)end.si_pid, &end, WEXITED);
		if (end.si_pid == k->child)
			on_end(k, &end);
		end.si_pid = 0;
	}
}

/* ---- signals ---- */

static void on_stop(struct keeper *k)
{
	if (k->stop)
		return;
	k->stop = true;
	k->ready_due = false;
	/* If the manager does not take this, the keeper's exit tells it. */
	manager_tell("STOPPING=1");
	if (k->child != 0)
		keeper_stop_child(k);
	else if (k->phase != PHASE_HANDING_OVER) /* the other keeper may still save the store */
		k->phase = PHASE_OVER;
}

static void on_upgrade(struct keeper *k)
{
	if (k->stop || k->phase == PHASE_HANDING_OVER || k->phase == PHASE_GIVING_BACK ||
	    k->phase == PHASE_IDLE)
		return;
	log_info("SIGUSR1: %s is ended and started anew from its file", k->name);
	if (k->child == 0) {
		keeper_start_anew(k);
	} else {
		k->upgrade = true;
		keeper_stop_child(k);
	}
}

static void read_signals(struct keeper *k)
{
	struct signalfd_siginfo info;

	while (read(k->signals, &info, sizeof(info)) == sizeof(info)) {
		switch (info.ssi_signo) {
		case SIGTERM:
		case SIGINT:
			on_stop(k);
			break;
		case SIGHUP:
			/* Before the program is ready it may have no handler for SIGHUP, and would die of it. */
			if (k->phase == PHASE_READY)
				kill(k->child, SIGHUP);
			else
				k->reload = true;
			break;
		case SIGUSR1:
			on_upgrade(k);
			break;
		case SIGCHLD:
			break;
		default:
			/* Passed on, this signal would end a gpuwmd that has no handler for it. */
			log_info("signal %u (%s) is ignored", info.ssi_signo, strsignal((int)info.ssi_signo));
		}
	}
}

/* ---- the loop ---- */

/* Acts on the program's silence for `interval_ms`, unless the keeper did not run either. */
static void on_silence(struct keeper *k, uint64_t now, uint64_t interval_ms, const char *why)
{
	if (now > k->deadline_ms + LATE_MS) {
		log_warning("gpuwm-keeper itself did not run for %llu ms: %s's time counts from now",
			    (unsigned long long)(now - k->deadline_ms), k->name);
		k->deadline_ms = now + interval_ms;
	} else {
		keeper_abort(k, why);
	}
}

static void on_deadline(struct keeper *k, uint64_t now)
{
	switch (k->phase) {
	case PHASE_WAITING:
		start_program(k);
		break;
	case PHASE_STARTING:
		on_silence(k, now, k->options->start_ms, "was not ready in time (READY=1)");
		break;
	case PHASE_READY:
		on_silence(k, now, k->options->watchdog_ms, "did not say in time that it lives (WATCHDOG=1)");
		break;
	case PHASE_STOPPING:
		kill_child(k, "does not end in time");
		break;
	case PHASE_ABORTING:
		kill_child(k, "does not end after SIGABRT");
		break;
	default:
		break;
	}
}

void keeper_tell_ready(struct keeper *k)
{
	k->ready_due = manager_tell("READY=1") < 0;
	k->ready_retry_ms = clock_steady_ms() + READY_RETRY_MS;
}

/* Returns the time until the earliest of the three deadlines, as poll(2) wants it. */
static int time_left(const struct keeper *k)
{
	uint64_t now = clock_steady_ms(), next = k->deadline_ms;

	if (k->hand_over.deadline_ms && (next == 0 || k->hand_over.deadline_ms < next))
		next = k->hand_over.deadline_ms;
	if (k->ready_due && (next == 0 || k->ready_retry_ms < next))
		next = k->ready_retry_ms;
	if (next == 0)
		return -1;
	if (next <= now)
		return 0;
	return next - now < INT_MAX ? (int)(next - now) : INT_MAX;
}

static void loop(struct keeper *k)
{
	struct pollfd ready[4] = {{.fd = k->inbox.fd, .events = POLLIN}, {.fd = k->signals, .events = POLLIN}};
	uint64_t now;

	start_after(k, 0);
	while (k->phase != PHASE_OVER) {
		succession_watch(k, ready + 2);
		poll(ready, 4, time_left(k));
		read_signals(k);
		reap(k);
		keeper_listen(k);
		if (k->phase != PHASE_OVER)
			succession_go_on(k, ready + 2);
		if (k->phase == PHASE_OVER)
			break;
		now = clock_steady_ms();
		if (k->deadline_ms && k->deadline_ms <= now)
			on_deadline(k, now);
		if (k->ready_due && k->ready_retry_ms <= now)
			keeper_tell_ready(k);
		succession_on_time(k, now);
	}
}

/* Returns the keeper's exit status. */
static int run_to_the_end(struct keeper *k)
{
	int r = succession_begin(k);

	if (r == -ECANCELED)
		return EXIT_SUCCESS;
	if (r < 0)
		return EXIT_FAILURE;
	loop(k);
	if (k->store.count > 0 && !k->take_over.lost && !take_over_is_open(&k->take_over))
		log_warning("%zu stored descriptors are let go: memory that no process maps is free again",
			    k->store.count);
	return k->exit_status;
}

int keeper_run(const struct options *options, char *const *environment, int signals)
{
	struct keeper *k = calloc(1, sizeof(*k));
	const char *slash = strrchr(options->command[0], '/');
	int status = EXIT_FAILURE;

	if (!k || store_init(&k->store, options->store_max) < 0) {
		log_error("out of memory");
		free(k);
		return status;
	}
	k->options = options;
	k->name = slash ? slash + 1 : options->command[0];
	k->environment = environment;
	k->signals = signals;
	k->restart.max_ms = options->restart_ms;
	ready_file_set(options->ready_file, false);
	if (inbox_open(&k->inbox, options->runtime_dir) == 0) {
		status = run_to_the_end(k);
		inbox_close(&k->inbox);
	}
	succession_end(k);
	store_clear(&k->store);
	free(k);
	return status;
}

void ready_file_set(const char *path, bool ready)
{
	int fd, code = 0;

	if (!path)
		return;
	if (!ready) {
		code = unlink(path) < 0 && errno != ENOENT ? errno : 0;
	} else {
		/* O_NONBLOCK: another user may have made a FIFO there. */
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
		code = fd < 0 ? errno : 0;
		if (fd >= 0)
			close(fd);
	}
	if (code)
		log_warning("--ready-file %s can't be %s: %s", path, ready ? "made" : "removed",
			    strerror(code));
}
