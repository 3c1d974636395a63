/* gpuwm-keeper keeps descriptors: what is stored comes back, by name, in order, with its bytes. */
#include "keeper_run.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(keeper);

static void upgrade(struct keeper *k)
{
	keeper_signal(k, SIGUSR1);
	service_wait(k);
}

static const char three[] = "5 worker:4096:10 s01:8192:20 s01:8192:21 s01:8192:22 stored:1:30";

static void store_three(struct keeper *k)
{
	ASK_IS(k, "0", "list");
	ASK_IS(k, "store 1", "store worker 1 4096 10 memfd");
	ASK_IS(k, "store 1", "store s01 3 8192 20 memfd");
	ASK_IS(k, "store 1", "store - 1 1 30 memfd");
	ASK_IS(k, "barrier 1", "barrier");
}

KEEPER_TEST(keeper, what_is_stored_survives_kill_9)
{
	keeper_start(k, NULL);
	store_three(k);
	for (int i = 0; i < 3; i++) {
		service_crash(k);
		ASK_IS(k, three, "list");
	}
	keeper_stop(k);
	cr_assert_eq(keeper_log_count(k, "5 stored descriptors are let go"), 1);
}

KEEPER_TEST(keeper, what_is_stored_survives_an_upgrade)
{
	keeper_start(k, NULL);
	store_three(k);
	for (int i = 0; i < 3; i++) {
		upgrade(k);
		ASK_IS(k, three, "list");
	}
}

/* The last words of a program are read before its death counts, also when the keeper learns of both at once. */
KEEPER_TEST(keeper, what_was_stored_just_before_the_death_is_kept)
{
	char nothing[64];

	keeper_start(k, "--restart-delay", "0", NULL);
	for (int i = 0; i < 20; i++) {
		char expected[16];

		keeper_signal(k, SIGSTOP);
		service_tell(k, "store x 1 16 1 memfd;kill 9");
		while (recv(k->service, nothing, sizeof nothing, 0) > 0)
			;
		keeper_signal(k, SIGCONT);
		service_wait(k);
		snprintf(expected, sizeof expected, "%d ", i + 1);
		cr_assert(strncmp(service_ask(k, "list"), expected, strlen(expected)) == 0);
	}
}

KEEPER_TEST(keeper, a_barrier_returns_when_all_before_it_is_done)
{
	size_t before;

	keeper_start(k, NULL);
	before = fds_of(k->pid);
	for (int i = 0; i < 50; i++) {
		ASK_IS(k, "store 1", "store a%d 3 16 1 memfd", i);
		ASK_IS(k, "barrier 1", "barrier");
		cr_assert_eq(fds_of(k->pid), before + 3);
		ASK_IS(k, "notify 1", "notify FDSTOREREMOVE=1|FDNAME=a%d", i);
		ASK_IS(k, "barrier 1", "barrier");
		cr_assert_eq(fds_of(k->pid), before);
	}
	keeper_stop(k);
	cr_assert_eq(keeper_log_count(k, "let go"), 0);
}

static int64_t shm_used(void)
{
	struct statfs fs;

	cr_assert(statfs("/dev/shm", &fs) == 0);
	return (int64_t)(fs.f_blocks - fs.f_bfree) * fs.f_bsize;
}

/* A file of /dev/shm is what a memfd is, on a file system that tells how much of it is in use. */
KEEPER_TEST(keeper, removing_returns_the_memory)
{
	const int64_t bytes = 16 << 20;
	struct statfs fs;
	int64_t before;
	int turn;

	SKIP_UNLESS(statfs("/dev/shm", &fs) == 0 && fs.f_type == 0x01021994, "/dev/shm is no tmpfs");
	/* The memory of others who run this test would be counted. */
	turn = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert(turn >= 0 && flock(turn, LOCK_EX) == 0);
	keeper_start(k, NULL);
	before = shm_used();
	ASK_IS(k, "store 1", "store big 1 %ld 1 tmpfs", (long)bytes);
	ASK_IS(k, "barrier 1", "barrier");
	ASK_IS(k, "closed", "close");
	service_crash(k);
	cr_assert_geq(shm_used(), before + bytes / 2, "it is not held");
	ASK_IS(k, "closed", "close");
	cr_assert_geq(shm_used(), before + bytes / 2, "it is not held by the keeper");
	ASK_IS(k, "notify 1", "notify FDSTOREREMOVE=1|FDNAME=big");
	ASK_IS(k, "barrier 1", "barrier");
	cr_assert(EVENTUALLY(SOON_MS, shm_used() < before + bytes / 2), "it is not returned");
	close(turn);
	service_crash(k);
	ASK_IS(k, "0", "list");
}

KEEPER_TEST(keeper, a_full_store_says_so_and_closes_what_it_does_not_keep)
{
	size_t before;

	keeper_start(k, "--store-max", "3", NULL);
	before = fds_of(k->pid);
	ASK_IS(k, "3", "env FDSTORE");
	ASK_IS(k, "store 1", "store a 5 16 1 memfd");
	ASK_IS(k, "store 1", "store b 1 16 9 memfd");
	ASK_IS(k, "barrier 1", "barrier");
	cr_assert_eq(fds_of(k->pid), before + 3);
	cr_assert_eq(keeper_log_count(k, "the store is full: 3 descriptors"), 1, "one line, not three");
	service_crash(k);
	ASK_IS(k, "3 a:16:1 a:16:2 a:16:3", "list");
	ASK_IS(k, "notify 1", "notify FDSTOREREMOVE=1|FDNAME=a");
	ASK_IS(k, "store 1", "store b 1 16 9 memfd");
	ASK_IS(k, "barrier 1", "barrier");
	service_crash(k);
	ASK_IS(k, "1 b:16:9", "list");
}

static void few_files(void)
{
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = 256, .rlim_max = 8192});
}

KEEPER_TEST(keeper, as_many_as_gpuwmd_may_store)
{
	char expected[64];
	const char *list;

	keeper_prepare(k);
	k->before_exec = few_files;
	keeper_spawn(k, NULL, NULL);
	service_wait(k);
	ASK_IS(k, "2048", "env FDSTORE");
	ASK_IS(k, "store 1", "store abcdef 2048 16 0 memfd each");
	ASK_IS(k, "barrier 1", "barrier");
	for (int i = 0; i < 3; i++) {
		service_crash(k);
		list = service_ask(k, "list");
		cr_assert(strncmp(list, "2048 abcdef000000:16:0 abcdef000001:16:1 ", 41) == 0);
		snprintf(expected, sizeof expected, " abcdef002047:16:%d", 2047 % 256);
		cr_assert_str_eq(strrchr(list, ' '), expected);
	}
	keeper_stop(k);
	cr_assert_eq(keeper_log_count(k, "full"), 0);
}

KEEPER_TEST(keeper, too_few_files_for_the_store_are_refused_at_start)
{
	static const char *const flags[] = {"--store-max", "5000", NULL};

	keeper_prepare(k);
	k->before_exec = few_files;
	keeper_spawn(k, flags, NULL);
	cr_assert_eq(keeper_join(k), 1);
	cr_assert_eq(keeper_log_count(k, "the hard limit is 8192"), 1);
	cr_assert_eq(keeper_log_count(k, "lower --store-max"), 1);
}

/* The numbers of the man page. */
static void a_file_too_few(void)
{
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = 256, .rlim_max = 4383});
}

static void just_enough_files(void)
{
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = 256, .rlim_max = 4384});
}

KEEPER_TEST(keeper, what_it_needs_is_twice_the_store_and_288)
{
	keeper_prepare(k);
	k->before_exec = a_file_too_few;
	keeper_spawn(k, NULL, NULL);
	cr_assert_eq(keeper_join(k), 1);
	cr_assert_eq(keeper_log_count(k, "a store of 2048 descriptors needs 4384 open files"), 1);
	keeper_prepare(k);
	k->before_exec = just_enough_files;
	keeper_spawn(k, NULL, NULL);
	service_wait(k);
}

static void limit_files(const struct keeper *k, rlim_t soft)
{
	struct rlimit files;

	cr_assert(prlimit(k->pid, RLIMIT_NOFILE, NULL, &files) == 0);
	files.rlim_cur = soft;
	cr_assert(prlimit(k->pid, RLIMIT_NOFILE, &files, NULL) == 0);
}

KEEPER_TEST(keeper, without_open_files_it_keeps_nothing_says_so_and_goes_on)
{
	struct rlimit files;
	size_t before;

	keeper_start(k, NULL);
	cr_assert(prlimit(k->pid, RLIMIT_NOFILE, NULL, &files) == 0);
	before = fds_of(k->pid);
	limit_files(k, 10);
	ASK_IS(k, "raw 0", "raw-253 FDSTORE=1|FDNAME=lost");
	ASK_IS(k, "barrier 1", "barrier");
	cr_assert_eq(keeper_log_count(k, "descriptors that notify-service sent are lost"), 1);
	limit_files(k, 300);
	ASK_IS(k, "store 1", "store refused 1 16 1 memfd");
	ASK_IS(k, "barrier 1", "barrier");
	cr_assert_eq(keeper_log_count(k, "refused is not kept: raise RLIMIT_NOFILE"), 1);
	cr_assert_eq(fds_of(k->pid), before);
	limit_files(k, files.rlim_cur);
	ASK_IS(k, "store 1", "store kept 1 16 1 memfd");
	service_crash(k);
	ASK_IS(k, "1 kept:16:1", "list");
}

KEEPER_TEST(keeper, notifications_of_other_processes_do_not_count)
{
	size_t before;

	keeper_start(k, NULL);
	ASK_IS(k, "store 1", "store mine 1 16 1 memfd");
	ASK_IS(k, "barrier 1", "barrier");
	before = fds_of(k->pid);
	cr_assert(strncmp(service_ask(k, "foreign-100 FDSTORE=1|FDNAME=theirs"), "foreign", 7) == 0);
	cr_assert(strncmp(service_ask(k, "foreign FDSTOREREMOVE=1|FDNAME=mine"), "foreign", 7) == 0);
	cr_assert(strncmp(service_ask(k, "foreign READY=1"), "foreign", 7) == 0);
	ASK_IS(k, "barrier 1", "barrier");
	cr_assert_eq(fds_of(k->pid), before);
	cr_assert_eq(keeper_log_count(k, "a notification of process"), 1, "one line, not 102");
	cr_assert_eq(keeper_log_count(k, "is ready"), 0);
	service_crash(k);
	ASK_IS(k, "1 mine:16:1", "list");
}

KEEPER_TEST(keeper, damaged_notifications_are_dropped)
{
	size_t before;

	keeper_start(k, NULL);
	before = fds_of(k->pid);
	ASK_IS(k, "raw 0", "raw FDSTORE=1#");
	ASK_IS(k, "raw 0", "raw-253 FDSTORE=1|#FDNAME=x");
	ASK_IS(k, "raw 0", "raw-253 FDSTORE=1|FDNAME=a:b");
	ASK_IS(k, "raw 0", "raw-253 FDSTORE=1|FDNAME=");
	ASK_IS(k, "raw 0", "raw-253 FDSTORE=1|FDNAME=%0256d", 1);
	ASK_IS(k, "raw 0", "raw-253 FDSTORE=1|FDNAME=x|%04100d", 1);
	ASK_IS(k, "raw 0", "raw-253 nothing that is known");
	ASK_IS(k, "raw 0", "raw FDSTORE=1|FDNAME=without");
	ASK_IS(k, "raw 0", "raw FDSTOREREMOVE=1");
	ASK_IS(k, "notify 1", "notify MAINPID=1|ERRNO=5|RELOADING=1|WATCHDOG=1");
	ASK_IS(k, "barrier 1", "barrier");
	cr_assert_eq(fds_of(k->pid), before);
	cr_assert_eq(keeper_log_count(k, "longer than 4096 bytes, or a zero byte"), 1);
	cr_assert_eq(keeper_log_count(k, "a name that is none"), 1);
	cr_assert_eq(keeper_log_count(k, "MAINPID"), 1);
	/* The descriptors are 253 times the same open file: kept once. */
	ASK_IS(k, "raw 0", "raw-253 FDSTORE=1|FDNAME=x");
	ASK_IS(k, "barrier 1", "barrier");
	cr_assert_eq(fds_of(k->pid), before + 1);
	service_crash(k);
	cr_assert(strncmp(service_ask(k, "list"), "1 x:", 4) == 0);
}

/* What it inherits itself: an open file, ignored and blocked signals, variables of another supervisor. */
static void odd_start(void)
{
	sigset_t all;

	dup2(0, 50);
	signal(SIGCHLD, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	setenv("LISTEN_FDS", "3", 1);
	setenv("LISTEN_PID", "1", 1);
	setenv("LISTEN_FDNAMES", "a:b:c", 1);
	setenv("WATCHDOG_USEC", "1000", 1);
	setenv("NOTIFY_SOCKET", "/nonexistent", 1);
}

KEEPER_TEST(keeper, the_program_starts_clean_whatever_the_keeper_inherits)
{
	keeper_prepare(k);
	k->before_exec = odd_start;
	keeper_spawn(k, NULL, NULL);
	service_wait(k);
	ASK_IS(k, "0000000000000000 0000000000000000", "signals");
	ASK_IS(k, "fds 0 1 2", "fds");
	ASK_IS(k, "(none)", "env LISTEN_FDS");
	ASK_IS(k, "(none)", "env LISTEN_PID");
	ASK_IS(k, "(none)", "env LISTEN_FDNAMES");
	ASK_IS(k, "(none)", "env WATCHDOG_USEC");
	ASK_IS(k, "store 1", "store a 2 16 1 memfd");
	service_crash(k);
	ASK_IS(k, "2 a:16:1 a:16:2", "list");
	ASK_IS(k, "fds 0 1 2 3 4", "fds");
	ASK_IS(k, "a:a", "env LISTEN_FDNAMES");
	cr_assert_eq(atoi(service_ask(k, "env LISTEN_PID")), k->service_pid);
	/* Leader of a session of its own. */
	cr_assert(strstr(service_ask(k, "limits"), " 1 "));
}
