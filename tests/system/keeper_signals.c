/* gpuwm-keeper as a process among others: signals, orphans, PID 1, another supervisor above it, gpuwmd below it. */
#include "keeper_run.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(keeper_signals);

static void ready(struct keeper *k)
{
	ASK_IS(k, "notify 1", "notify READY=1");
	ASK_IS(k, "barrier 1", "barrier");
}

/* ---- stopping --------------------------------------------------------- */

KEEPER_TEST(keeper_signals, sigterm_and_sigint_stop_the_program_and_let_go)
{
	keeper_start(k, NULL);
	ready(k);
	keeper_stop(k);
	cr_assert_eq(keeper_log_count(k, "let go"), 0);
	cr_assert_eq(keeper_log_count(k, "notify-service ended with status 0"), 1);

	keeper_start(k, NULL);
	ready(k);
	ASK_IS(k, "store 1", "store a 3 16 1 memfd");
	ASK_IS(k, "barrier 1", "barrier");
	keeper_signal(k, SIGINT);
	cr_assert_eq(keeper_join(k), 0);
	cr_assert_eq(keeper_log_count(k, "3 stored descriptors are let go"), 1);
}

KEEPER_TEST(keeper_signals, a_program_that_ignores_sigterm_is_killed)
{
	int64_t before;

	keeper_start(k, "--stop-timeout", "0.3", NULL);
	ASK_IS(k, "ignore 0", "ignore 15");
	before = clock_ms();
	keeper_stop(k);
	cr_assert_geq(clock_ms() - before, 300);
	cr_assert_eq(keeper_log_count(k, "does not end in time: SIGKILL"), 1);
}

KEEPER_TEST(keeper_signals, a_stopped_program_can_end)
{
	keeper_start(k, NULL);
	kill(k->service_pid, SIGSTOP);
	keeper_stop(k);
	cr_assert_eq(keeper_log_count(k, "SIGKILL"), 0);
}

KEEPER_TEST(keeper_signals, a_program_may_extend_the_time_to_stop)
{
	int64_t before;

	keeper_start(k, "--stop-timeout", "2", NULL);
	ASK_IS(k, "on-term 1", "on-term EXTEND_TIMEOUT_USEC=4000000");
	before = clock_ms();
	keeper_stop(k);
	cr_assert_geq(clock_ms() - before, 4000);
	cr_assert_eq(keeper_log_count(k, "does not end in time: SIGKILL"), 1);
}

KEEPER_TEST(keeper_signals, one_that_says_that_it_stops_must_end_and_is_started_again)
{
	keeper_start(k, "--stop-timeout", "0.2", NULL);
	ready(k);
	ASK_IS(k, "notify 1", "notify STOPPING=1");
	service_wait(k);
	cr_assert_eq(keeper_log_count(k, "does not end in time: SIGKILL"), 1);
}

KEEPER_TEST(keeper_signals, nothing_is_waited_for_when_nothing_runs)
{
	int64_t before;

	keeper_start(k, "--restart-delay", "60", NULL);
	for (int i = 0; i < 7; i++)
		service_crash(k);
	service_tell(k, "kill 9");
	cr_assert(EVENTUALLY(KEEPER_MS, keeper_log_count(k, "again in 6400 ms") == 1));
	before = clock_ms();
	keeper_stop(k);
	cr_assert_lt(clock_ms() - before, 6000);
}

KEEPER_TEST(keeper_signals, a_killed_keeper_takes_the_program_along)
{
	char nothing;

	keeper_start(k, NULL);
	ready(k);
	ASK_IS(k, "ignore 0", "ignore 15");
	keeper_signal(k, SIGKILL);
	cr_assert(poll(&(struct pollfd){.fd = k->service, .events = POLLIN}, 1, KEEPER_MS) == 1);
	cr_assert_leq(recv(k->service, &nothing, 1, 0), 0, "it lives");
	waitpid(k->pid, NULL, 0);
	k->pid = 0;
}

/* ---- other signals ---------------------------------------------------- */

KEEPER_TEST(keeper_signals, sighup_is_passed_on_when_the_program_is_ready)
{
	keeper_start(k, NULL);
	keeper_signal(k, SIGHUP);
	/* Signals are read in the order of their numbers. */
	keeper_signal(k, SIGUSR2);
	cr_assert(EVENTUALLY(KEEPER_MS, keeper_log_count(k, "signal 12") == 1));
	ASK_IS(k, "0", "hangups");
	ASK_IS(k, "notify 1", "notify READY=1");
	cr_assert(EVENTUALLY(KEEPER_MS, strcmp(service_ask(k, "hangups"), "1") == 0));
	keeper_signal(k, SIGHUP);
	cr_assert(EVENTUALLY(KEEPER_MS, strcmp(service_ask(k, "hangups"), "2") == 0));
	service_runs(k);
}

KEEPER_TEST(keeper_signals, no_other_signal_ends_it_or_reaches_the_program)
{
	keeper_start(k, NULL);
	ready(k);
	for (int number = 1; number <= SIGRTMAX; number++) {
		if (number == 32 || number == 33)
			continue; /* libc's own, which it lets nobody block */
		switch (number) {
		case SIGTERM:
		case SIGINT:
		case SIGUSR1:
		case SIGHUP:
		case SIGKILL:
		case SIGSTOP:
		case SIGTSTP:
		case SIGABRT:
		case SIGSEGV:
		case SIGBUS:
		case SIGFPE:
		case SIGILL:
		case SIGTRAP:
		case SIGSYS:
			break;
		default:
			kill(k->pid, number);
		}
	}
	cr_assert(EVENTUALLY(KEEPER_MS, keeper_log_count(k, "is ignored") == 2));
	cr_assert_eq(keeper_log_count(k, "signal 3 (Quit) is ignored"), 1);
	ASK_IS(k, "barrier 1", "barrier");
	service_runs(k);
}

/* ---- surroundings ----------------------------------------------------- */

KEEPER_TEST(keeper_signals, orphans_are_reaped)
{
	keeper_start(k, NULL);
	for (int i = 0; i < 5; i++)
		ASK_IS(k, "orphan", "orphan");
	cr_assert_eq(keeper_children(k), 6, "orphans go elsewhere: %zu", keeper_children(k));
	ASK_IS(k, "ended", "orphans-end");
	cr_assert(EVENTUALLY(KEEPER_MS, keeper_children(k) == 1), "%zu children", keeper_children(k));
	service_runs(k);
}

static void without_streams(void)
{
	close(0);
	close(1);
	close(2);
}

KEEPER_TEST(keeper_signals, it_works_without_standard_streams)
{
	keeper_prepare(k);
	k->before_exec = without_streams;
	keeper_spawn(k, NULL, NULL);
	service_wait(k);
	ASK_IS(k, "fds 0 1 2", "fds");
	ASK_IS(k, "store 1", "store a 1 16 1 memfd");
	service_crash(k);
	ASK_IS(k, "fds 0 1 2 3", "fds");
	ASK_IS(k, "1 a:16:1", "list");
}

/* The keeper is the first process of a namespace; what remains here waits for it. */
static void as_pid_1(void)
{
	pid_t pid;
	int status;

	if (unshare(CLONE_NEWPID) < 0)
		_exit(124);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		return;
	}
	waitpid(pid, &status, 0);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 123);
}

static bool may_unshare(void)
{
	int status = 1;

	if (fork() == 0)
		_exit(unshare(CLONE_NEWPID) < 0);
	wait(&status);
	return status == 0;
}

KEEPER_TEST(keeper_signals, it_works_as_pid_1)
{
	pid_t outside[CHILDREN_MAX], inside[CHILDREN_MAX];

	SKIP_UNLESS(may_unshare(), "no permission for a PID namespace");
	keeper_prepare(k);
	k->before_exec = as_pid_1;
	keeper_spawn(k, NULL, NULL);
	service_wait(k);
	cr_assert(strstr(service_ask(k, "limits"), " 1 1"), "its parent is not process 1");
	ready(k);
	ASK_IS(k, "store 1", "store a 2 16 1 memfd");
	for (int i = 0; i < 5; i++)
		ASK_IS(k, "orphan", "orphan");
	cr_assert_eq(loaders_of(k->pid, outside), 1);
	cr_assert_eq(loaders_of(outside[0], inside), 6);
	ASK_IS(k, "ended", "orphans-end");
	cr_assert(EVENTUALLY(KEEPER_MS, loaders_of(outside[0], inside) == 1), "orphans are left");
	service_crash(k);
	ASK_IS(k, "2 a:16:1 a:16:2", "list");
	cr_assert(kill(outside[0], SIGQUIT) == 0 && kill(outside[0], SIGUSR1) == 0);
	service_wait(k);
	ASK_IS(k, "2 a:16:1 a:16:2", "list");
	cr_assert(kill(outside[0], SIGTERM) == 0);
	cr_assert_eq(keeper_join(k), 0);
	cr_assert_eq(keeper_log_count(k, "2 stored descriptors are let go"), 1);
}

static char upper_path[128];

static void below_another(void)
{
	setenv("NOTIFY_SOCKET", upper_path, 1);
}

/* The next notification to the supervisor above. */
static void expect_above(int sock, const char *expected)
{
	char text[256];
	ssize_t got;

	cr_assert(poll(&(struct pollfd){.fd = sock, .events = POLLIN}, 1, KEEPER_MS) == 1, "not said: %s",
		  expected);
	got = recv(sock, text, sizeof text - 1, 0);
	text[got > 0 ? got : 0] = 0;
	cr_assert_str_eq(text, expected);
}

/* A keeper's folder, and the socket of a supervisor above it. */
static int prepare_above(struct keeper *k)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int above = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	keeper_prepare(k);
	snprintf(upper_path, sizeof upper_path, "%s/above", k->folder.dir);
	strcpy(address.sun_path, upper_path);
	cr_assert(bind(above, (struct sockaddr *)&address, sizeof address) == 0);
	k->before_exec = below_another;
	return above;
}

/* Until its queue takes no more. */
static void fill_above(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	strcpy(address.sun_path, upper_path);
	while (sendto(sock, "noise", 5, 0, (struct sockaddr *)&address, sizeof address) == 5)
		;
	cr_assert_eq(errno, EAGAIN);
	close(sock);
}

static void drain_above(int above)
{
	char text[256];

	while (recv(above, text, sizeof text, MSG_DONTWAIT) > 0)
		;
}

KEEPER_TEST(keeper_signals, a_supervisor_above_that_does_not_read_stops_nothing)
{
	int above = prepare_above(k);

	fill_above();
	keeper_spawn(k, NULL, NULL);
	service_wait(k);
	ASK_IS(k, "notify 1", "notify READY=1|STATUS=nobody hears this");
	ASK_IS(k, "barrier 1", "barrier");
	service_crash(k);
	ASK_IS(k, "notify 1", "notify STATUS=nor this");
	ASK_IS(k, "barrier 1", "barrier");
	/* Being ready is told when it can be, once; the next status too. */
	drain_above(above);
	expect_above(above, "READY=1");
	ASK_IS(k, "notify 1", "notify STATUS=but this");
	expect_above(above, "STATUS=but this");
	fill_above();
	keeper_stop(k);
	close(above);
}

/* Readiness that is still to be told is not told behind the end. */
KEEPER_TEST(keeper_signals, a_keeper_that_stops_is_not_ready_any_more)
{
	int above = prepare_above(k);

	fill_above();
	keeper_spawn(k, (const char *[]){"--stop-timeout", "2", NULL}, NULL);
	service_wait(k);
	ASK_IS(k, "notify 1", "notify READY=1");
	ASK_IS(k, "on-term 1", "on-term X=1");
	ASK_IS(k, "barrier 1", "barrier");
	/* It answers when the keeper, which is stopping by then, has made it continue. */
	kill(k->service_pid, SIGSTOP);
	keeper_signal(k, SIGTERM);
	ASK_IS(k, "0", "hangups");
	drain_above(above);
	/* It would try again each second. It kills the service after two, and ends. */
	cr_assert_eq(keeper_join(k), 0);
	cr_assert_eq(keeper_log_count(k, "does not end in time: SIGKILL"), 1);
	cr_assert(poll(&(struct pollfd){.fd = above, .events = POLLIN}, 1, 0) == 0, "it told something");
	close(above);
}

KEEPER_TEST(keeper_signals, what_matters_is_passed_to_a_supervisor_above)
{
	int above = prepare_above(k);

	keeper_spawn(k, NULL, NULL);
	service_wait(k);
	cr_assert(strcmp(service_ask(k, "env NOTIFY_SOCKET"), upper_path) != 0);
	ASK_IS(k, "notify 1", "notify STATUS=adopts 3 versions|FDNAME=x");
	expect_above(above, "STATUS=adopts 3 versions");
	ASK_IS(k, "notify 1", "notify READY=1|WATCHDOG=1|RELOADING=1|MAINPID=5");
	expect_above(above, "READY=1");
	/* Its end is ours to mend, and no end of ours. */
	service_tell(k, "notify STOPPING=1;exit 0");
	service_wait(k);
	keeper_signal(k, SIGTERM);
	expect_above(above, "STOPPING=1");
	cr_assert_eq(keeper_join(k), 0);
	close(above);
}

/* ---- gpuwmd ----------------------------------------------------------- */

/* Beside the killed one there may be orphans: its loaders. */
static pid_t another_gpuwmd(const struct keeper *k)
{
	pid_t pids[CHILDREN_MAX];
	size_t count = loaders_of(k->pid, pids);

	for (size_t i = 0; i < count; i++) {
		if (pids[i] != k->folder.pid && process_is_named(pids[i], "gpuwmd"))
			return pids[i];
	}
	return 0;
}

/* The process that runs now, once it serves. */
static void gpuwmd_find(struct keeper *k)
{
	pid_t pid;

	cr_assert(EVENTUALLY(KEEPER_MS, (pid = another_gpuwmd(k)) != 0));
	k->folder.pid = pid;
	gpuwmd_wait(&k->folder);
}

Test(keeper_signals, gpuwmd_runs_below_it)
{
	struct keeper k;
	struct gpuwmd *d = &k.folder;
	char program[512];
	const char *const command[] = {program,         "--socket", d->socket, "--admin-socket",
				       d->admin_socket, "--root",   d->root,   NULL};

	snprintf(program, sizeof program, "%s/bin/gpuwmd", build_path());
	keeper_prepare(&k);
	keeper_spawn(&k, NULL, command);
	gpuwmd_find(&k);
	cr_assert(EVENTUALLY(KEEPER_MS, keeper_log_count(&k, "gpuwmd is ready") == 1));
	load_small(d, 1);
	worker_reads(d, "m", 1);
	gpuwm_close(d->admin);
	cr_assert(kill(d->pid, SIGKILL) == 0);
	gpuwmd_find(&k);
	cr_assert(EVENTUALLY(KEEPER_MS, keeper_log_count(&k, "gpuwmd is ready") == 2));
	gpuwm_close(d->admin);
	keeper_stop(&k);
	cr_assert_eq(keeper_log_count(&k, "gpuwmd ended with status 0"), 1);
}
