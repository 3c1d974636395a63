/* gpuwm-keeper starts its program again: at once, then later and later, never not; when to end with it; the watchdog; upgrades. */
#include "keeper_run.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

SYSTEM_SUITE(keeper_life);

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void pass_ms(int64_t ms)
{
	EVENTUALLY(ms, false);
}

/* ---- restarts --------------------------------------------------------- */

KEEPER_TEST(keeper_life, twenty_crashes_in_a_row_keep_the_store)
{
	keeper_start(k, "--restart-delay", "0.02", NULL);
	ASK_IS(k, "store 1", "store a 2 4096 5 memfd");
	ASK_IS(k, "barrier 1", "barrier");
	for (int i = 0; i < 20; i++) {
		service_crash(k);
		ASK_IS(k, "2 a:4096:5 a:4096:6", "list");
	}
	cr_assert_eq(keeper_log_count(k, "was ended by signal 9 (Killed)"), 20);
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

KEEPER_TEST(keeper_life, a_crash_costs_milliseconds)
{
	int64_t taken[21], before;

	keeper_start(k, "--restart-delay", "0", NULL);
	ASK_IS(k, "store 1", "store abcdef 100 16 0 memfd each");
	for (int i = 0; i < 21; i++) {
		before = now_ns();
		cr_assert(kill(k->service_pid, SIGKILL) == 0);
		service_wait(k);
		taken[i] = k->began_ns - before;
	}
	qsort(taken, 21, sizeof taken[0], compare);
	cr_log_info("from SIGKILL to main of the next, 100 descriptors stored: median %.2f ms, longest %.2f ms",
		    (double)taken[10] / 1e6, (double)taken[20] / 1e6);
	cr_assert_eq(keeper_log_count(k, "again at once"), 21);
	/* Far above what it takes (2 ms, of them 1.4 for the program's own exec), below the first delay. The quickest
	 * tells least of what else the machine does. */
	cr_assert(SANITIZED || taken[0] < 50 * INT64_C(1000000), "%jd ns", (intmax_t)taken[0]);
}

/* Asserts that the start after this crash came no sooner than it should. */
static void crash_after(struct keeper *k, int64_t delay_ms)
{
	int64_t before = now_ns();

	service_crash(k);
	cr_assert_geq(k->began_ns - before, delay_ms * 1000000);
}

KEEPER_TEST(keeper_life, the_delay_grows_and_a_good_run_resets_it)
{
	keeper_start(k, "--restart-delay", "0.3", NULL);
	crash_after(k, 0);
	crash_after(k, 100);
	crash_after(k, 200);
	crash_after(k, 300);
	crash_after(k, 300);
	cr_assert_eq(keeper_log_count(k, "again at once"), 1);
	cr_assert_eq(keeper_log_count(k, "again in 100 ms"), 1);
	cr_assert_eq(keeper_log_count(k, "again in 200 ms"), 1);
	cr_assert_eq(keeper_log_count(k, "again in 300 ms"), 2);
	/* Running is not enough: it must be ready. */
	pass_ms(400);
	crash_after(k, 300);
	ASK_IS(k, "notify 1", "notify READY=1");
	ASK_IS(k, "barrier 1", "barrier");
	pass_ms(400);
	crash_after(k, 0);
	cr_assert_eq(keeper_log_count(k, "again at once"), 2);
	crash_after(k, 100);
}

/* A user who may have two processes. */
#define ANOTHER 64123 /* a uid that nobody has */

static int become_another(void)
{
	setrlimit(RLIMIT_NPROC, &(struct rlimit){.rlim_cur = 2, .rlim_max = 2});
	if (setresgid(ANOTHER, ANOTHER, ANOTHER) < 0 || setresuid(ANOTHER, ANOTHER, ANOTHER) < 0)
		return -1;
	return prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void as_another(void)
{
	if (become_another() < 0)
		_exit(124);
}

static bool is_another(pid_t pid)
{
	struct stat stat_;
	char path[32];

	snprintf(path, sizeof path, "/proc/%d", (int)pid);
	return stat(path, &stat_) == 0 && stat_.st_uid == ANOTHER;
}

KEEPER_TEST(keeper_life, a_start_that_fails_is_tried_again)
{
	pid_t second;

	SKIP_UNLESS(geteuid() == 0 && build_is_open_to(ANOTHER),
		    "only root can be somebody else, who must be able to read the build");
	second = fork();
	if (second == 0) {
		as_another();
		pause();
	}
	cr_assert(EVENTUALLY(KEEPER_MS, is_another(second)));
	keeper_prepare(k);
	k->before_exec = as_another;
	chmod(k->folder.dir, 0777);
	chmod(k->control, 0777);
	keeper_spawn(k, NULL, NULL);
	cr_assert(EVENTUALLY(KEEPER_MS,
			     access(k->log, F_OK) == 0 &&
				     keeper_log_count(k, "notify-service can't be started: Resource") >= 2));
	cr_assert(kill(second, SIGKILL) == 0 && waitpid(second, NULL, 0) == second);
	service_wait(k);
}

/* ---- ending with the program ------------------------------------------ */

static int status_with(struct keeper *k, const char *program, const char *argument)
{
	const char *const command[] = {program, "-c", argument, NULL};

	keeper_prepare(k);
	keeper_spawn(k, NULL, command);
	return keeper_join(k);
}

KEEPER_TEST(keeper_life, a_first_start_that_ends_by_itself_ends_the_keeper)
{
	cr_assert_eq(status_with(k, "sh", "exit 2"), 2);
	cr_assert_eq(keeper_log_count(k, "sh ended with status 2 before it was ready: gpuwm-keeper ends too"),
		     1);
	cr_assert_eq(status_with(k, "sh", "exit 1"), 1);
	cr_assert_eq(status_with(k, "sh", "exit 0"), 0);
	cr_assert_eq(keeper_log_count(k, "let go"), 0);
}

KEEPER_TEST(keeper_life, a_program_that_is_none_ends_the_keeper)
{
	cr_assert_eq(status_with(k, "no-such-program", ""), 127);
	cr_assert_eq(keeper_log_count(k, "no-such-program can't be run: No such file or directory"), 1);
	cr_assert_eq(status_with(k, "/dev/null", ""), 126);
	cr_assert_eq(keeper_log_count(k, "/dev/null can't be run: Permission denied"), 1);
}

KEEPER_TEST(keeper_life, a_usage_error_of_gpuwmd_ends_the_keeper)
{
	char program[512];
	const char *const command[] = {program, "--nonsense", NULL};

	snprintf(program, sizeof program, "%s/bin/gpuwmd", build_path());
	keeper_prepare(k);
	keeper_spawn(k, NULL, command);
	cr_assert_eq(keeper_join(k), 2);
	cr_assert_eq(keeper_log_count(k, "--nonsense"), 1);
}

KEEPER_TEST(keeper_life, in_every_other_case_it_is_started_again)
{
	/* Killed at its first start. */
	keeper_start(k, "--restart-delay", "0", NULL);
	service_crash(k);
	/* A second start. */
	service_tell(k, "exit 2");
	service_wait(k);
	keeper_stop(k);
	/* It was ready. */
	keeper_start(k, NULL);
	service_tell(k, "notify READY=1;exit 2");
	service_wait(k);
	keeper_stop(k);
	/* It has stored something. */
	keeper_start(k, NULL);
	service_tell(k, "store a 1 16 1 memfd;exit 2");
	service_wait(k);
	ASK_IS(k, "1 a:16:1", "list");
}

/* ---- the start -------------------------------------------------------- */

KEEPER_TEST(keeper_life, one_that_is_not_ready_in_time_is_aborted_and_started_again)
{
	keeper_start(k, "--start-timeout", "2", "--restart-delay", "0", NULL);
	ASK_IS(k, "store 1", "store a 1 16 1 memfd");
	service_wait(k);
	ASK_IS(k, "1 a:16:1", "list");
	cr_assert_eq(keeper_log_count(k, "was not ready in time (READY=1): SIGABRT"), 1);
	cr_assert_eq(keeper_log_count(k, "was ended by signal 6 (Aborted)"), 1);
	/* Each start has its own time, and a stopped one too. */
	kill(k->service_pid, SIGSTOP);
	service_wait(k);
	cr_assert_eq(keeper_log_count(k, "was not ready in time"), 2);
	ASK_IS(k, "notify 1", "notify READY=1");
	ASK_IS(k, "barrier 1", "barrier");
	pass_ms(3000);
	service_runs(k);
}

KEEPER_TEST(keeper_life, a_program_may_extend_the_time_to_start)
{
	keeper_start(k, "--start-timeout", "2", "--restart-delay", "0", NULL);
	int64_t before = clock_ms();

	ASK_IS(k, "notify 1", "notify EXTEND_TIMEOUT_USEC=4000000");
	/* Less than what is left takes nothing away. */
	ASK_IS(k, "notify 1", "notify EXTEND_TIMEOUT_USEC=1000");
	service_wait(k);
	cr_assert_geq(clock_ms() - before, 4000);
	cr_assert_eq(keeper_log_count(k, "was not ready in time"), 1);
}

KEEPER_TEST(keeper_life, without_a_start_timeout_there_is_nothing_to_extend)
{
	keeper_start(k, "--start-timeout", "0", NULL);
	ASK_IS(k, "notify 1", "notify EXTEND_TIMEOUT_USEC=100000");
	ASK_IS(k, "barrier 1", "barrier");
	pass_ms(500);
	service_runs(k);
}

KEEPER_TEST(keeper_life, a_pause_of_both_is_no_slow_start)
{
	keeper_start(k, "--start-timeout", "2", NULL);
	kill(k->service_pid, SIGSTOP);
	keeper_signal(k, SIGSTOP);
	pass_ms(4500);
	keeper_signal(k, SIGCONT);
	cr_assert(EVENTUALLY(KEEPER_MS, keeper_log_count(k, "gpuwm-keeper itself did not run") == 1));
	kill(k->service_pid, SIGCONT);
	ASK_IS(k, "notify 1", "notify READY=1");
	ASK_IS(k, "barrier 1", "barrier");
	service_runs(k);
	cr_assert_eq(keeper_log_count(k, "was not ready in time"), 0);
}

/* ---- the watchdog ----------------------------------------------------- */

KEEPER_TEST(keeper_life, a_program_that_says_that_it_lives_is_left_alone)
{
	char pid[16];

	keeper_start(k, "--watchdog", "2", NULL);
	snprintf(pid, sizeof pid, "%d", (int)k->service_pid);
	ASK_IS(k, "2000000", "env WATCHDOG_USEC");
	ASK_IS(k, pid, "env WATCHDOG_PID");
	/* Before it is ready, it may take its time. */
	pass_ms(3000);
	service_runs(k);
	ASK_IS(k, "feed 50", "feed 50");
	ASK_IS(k, "notify 1", "notify READY=1");
	pass_ms(4000);
	service_runs(k);
}

KEEPER_TEST(keeper_life, one_that_hangs_is_aborted_and_started_again)
{
	keeper_start(k, "--watchdog", "1.5", NULL);
	ASK_IS(k, "store 1", "store a 1 16 1 memfd");
	ASK_IS(k, "notify 1", "notify READY=1");
	service_wait(k);
	ASK_IS(k, "1 a:16:1", "list");
	cr_assert_eq(keeper_log_count(k, "did not say in time that it lives"), 1);
	cr_assert_eq(keeper_log_count(k, "was ended by signal 6 (Aborted)"), 1);
	/* A stopped one, too. */
	ASK_IS(k, "feed 50", "feed 50");
	ASK_IS(k, "notify 1", "notify READY=1");
	ASK_IS(k, "barrier 1", "barrier");
	kill(k->service_pid, SIGSTOP);
	service_wait(k);
	cr_assert_eq(keeper_log_count(k, "was ended by signal 6 (Aborted)"), 2);
}

KEEPER_TEST(keeper_life, one_that_survives_the_abort_is_killed)
{
	int64_t before = clock_ms();

	keeper_start(k, "--watchdog", "0.1", NULL);
	ASK_IS(k, "ignore 0", "ignore 6");
	ASK_IS(k, "notify 1", "notify READY=1");
	service_wait(k);
	cr_assert_geq(clock_ms() - before, 5000);
	cr_assert_eq(keeper_log_count(k, "does not end after SIGABRT: SIGKILL"), 1);
}

KEEPER_TEST(keeper_life, one_that_asks_for_it_is_aborted)
{
	keeper_start(k, NULL);
	service_tell(k, "notify WATCHDOG=trigger");
	service_wait(k);
	cr_assert_eq(keeper_log_count(k, "was ended by signal 6 (Aborted)"), 1);
}

/* A paused container: both were stopped, and neither is to blame. */
KEEPER_TEST(keeper_life, a_pause_of_both_is_no_hang)
{
	keeper_start(k, "--watchdog", "2", NULL);
	ASK_IS(k, "feed 50", "feed 50");
	ASK_IS(k, "notify 1", "notify READY=1");
	ASK_IS(k, "barrier 1", "barrier");
	/* The service first, and awake last: nothing it says may hide that time has passed. */
	kill(k->service_pid, SIGSTOP);
	keeper_signal(k, SIGSTOP);
	pass_ms(4500);
	keeper_signal(k, SIGCONT);
	cr_assert(EVENTUALLY(SOON_MS, keeper_log_count(k, "gpuwm-keeper itself did not run") == 1));
	kill(k->service_pid, SIGCONT);
	pass_ms(3000);
	service_runs(k);
}

/* ---- upgrades --------------------------------------------------------- */

/* A new file in the old one's place, as a package does it: `label` is what the program then says of itself. */
static void install(struct keeper *k, const char *label)
{
	char new[128];
	FILE *file;

	snprintf(k->program, sizeof k->program, "%s/program", k->folder.dir);
	snprintf(new, sizeof new, "%s.new", k->program);
	file = fopen(new, "we");
	cr_assert(file);
	fprintf(file, "#!/bin/sh\nexec %s/tests/tools/notify-service $1 %s\n", build_path(), label);
	fclose(file);
	cr_assert(chmod(new, 0755) == 0 && rename(new, k->program) == 0);
}

KEEPER_TEST(keeper_life, an_upgrade_runs_the_new_file_with_the_whole_store)
{
	keeper_prepare(k);
	install(k, "one");
	keeper_spawn(k, NULL, NULL);
	service_wait(k);
	cr_assert_str_eq(k->label, "one");
	ASK_IS(k, "notify 1", "notify READY=1");
	ASK_IS(k, "store 1", "store a 2 16 1 memfd");
	ASK_IS(k, "barrier 1", "barrier"); /* a signal may overtake what was notified */
	install(k, "two");
	keeper_signal(k, SIGUSR1);
	service_wait(k);
	cr_assert_str_eq(k->label, "two");
	ASK_IS(k, "2 a:16:1 a:16:2", "list");
	ASK_IS(k, "notify 1", "notify READY=1");
	ASK_IS(k, "barrier 1", "barrier");
	cr_assert_eq(keeper_log_count(k, "program is ready"), 2);
	/* Its end was no crash, and each upgrade is at once. */
	for (int i = 0; i < 3; i++) {
		keeper_signal(k, SIGUSR1);
		service_wait(k);
	}
	cr_assert_eq(keeper_log_count(k, "again at once"), 4);
}

KEEPER_TEST(keeper_life, an_upgrade_to_what_can_not_run_is_tried_until_it_can)
{
	char away[128];

	keeper_prepare(k);
	install(k, "one");
	snprintf(away, sizeof away, "%s.away", k->program);
	keeper_spawn(k, NULL, NULL);
	service_wait(k);
	ASK_IS(k, "store 1", "store a 1 16 1 memfd");
	cr_assert(rename(k->program, away) == 0);
	keeper_signal(k, SIGUSR1);
	cr_assert(EVENTUALLY(KEEPER_MS, keeper_log_count(k, "can't be run: No such file") >= 3));
	cr_assert(rename(away, k->program) == 0);
	service_wait(k);
	ASK_IS(k, "1 a:16:1", "list");
}

KEEPER_TEST(keeper_life, an_upgrade_does_not_wait_for_a_delay)
{
	int64_t before;

	keeper_start(k, "--restart-delay", "60", NULL);
	for (int i = 0; i < 7; i++)
		service_crash(k);
	before = clock_ms();
	service_tell(k, "kill 9");
	cr_assert(EVENTUALLY(KEEPER_MS, keeper_log_count(k, "again in 6400 ms") == 1));
	keeper_signal(k, SIGUSR1);
	service_wait(k);
	cr_assert_lt(clock_ms() - before, 6400);
}

KEEPER_TEST(keeper_life, an_upgrade_of_one_that_does_not_end_kills_it)
{
	keeper_start(k, "--stop-timeout", "0.2", NULL);
	ASK_IS(k, "store 1", "store a 1 16 1 memfd");
	ASK_IS(k, "ignore 0", "ignore 15");
	keeper_signal(k, SIGUSR1);
	service_wait(k);
	ASK_IS(k, "1 a:16:1", "list");
	cr_assert_eq(keeper_log_count(k, "does not end in time: SIGKILL"), 1);
}
