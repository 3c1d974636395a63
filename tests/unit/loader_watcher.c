/* What ends a loader whose gpuwmd is gone, or has given it up. */
#include "../../loader/standby.h"
#include "../../base/limits.h"
#include "tests/support/any/threads.h"
#include "tests/support/any/until.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOON_MS 10000

static int gpuwmd, loader_log; /* the daemon's end; what the loader says */
static pid_t loader;

/* A loader that is watched, and then hangs in a call; `prepare` runs in it first. */
static void start(void (*prepare)(int sock))
{
	int pair[2], log[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	cr_assert_eq(pipe(log), 0);
	loader = fork();
	if (loader == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* of a test that failed nothing is left */
		close(pair[0]);
		dup2(log[1], STDERR_FILENO);
		if (prepare)
			prepare(pair[1]);
		if (watcher_start(pair[1]) < 0)
			_exit(99);
		for (;;)
			pause();
	}
	close(pair[1]);
	close(log[1]);
	gpuwmd = pair[0];
	loader_log = log[0];
}

static bool ends_within(int ms)
{
	int pidfd = (int)syscall(SYS_pidfd_open, loader, 0);
	struct pollfd end = {.fd = pidfd, .events = POLLIN};
	bool ended = poll(&end, 1, ms) == 1;

	close(pidfd);
	return ended;
}

static void expect_to_live_on(void)
{
	UNTIL(thread_sleeps_in(loader, NULL, CALL_POLL)); /* the watcher */
	cr_assert_not(ends_within(2 * WATCHER_PATIENCE_MS), "it ended without a reason");
}

static int status(void)
{
	int result = 0;

	cr_assert_eq(waitpid(loader, &result, 0), loader);
	return result;
}

static void expect_ended_by_the_watcher(void)
{
	char said[256] = "";

	/* Long before gpuwmd would kill it, but for a busy machine. */
	_Static_assert(WATCHER_PATIENCE_MS < LOADER_KILL_MS / 4, "");
	cr_assert(ends_within(SOON_MS), "it lives on");
	cr_assert(WIFEXITED(status()));
	cr_expect_gt(read(loader_log, said, sizeof(said) - 1), 0);
	cr_expect(strstr(said, "gpuwmd hung up amid a call"), "%s", said);
}

Test(watcher, a_loader_that_hangs_ends_when_gpuwmd_hangs_up, .timeout = 120)
{
	start(NULL);
	expect_to_live_on();
	close(gpuwmd);
	expect_ended_by_the_watcher();
}

/* The loader's own descriptor may be closed by then: the watcher has its own. */
static void forget_the_socket(int sock)
{
	if (watcher_start(sock) < 0)
		_exit(99);
	close(sock);
	for (;;)
		pause();
}

Test(watcher, has_a_descriptor_of_its_own, .timeout = 120)
{
	start(forget_the_socket);
	expect_to_live_on();
	close(gpuwmd);
	expect_ended_by_the_watcher();
}

Test(watcher, packets_that_nobody_reads_do_not_wake_it, .timeout = 120)
{
	start(NULL);
	for (int i = 0; i < 10; i++)
		cr_assert_eq(send(gpuwmd, "x", 1, 0), 1);
	expect_to_live_on();
	close(gpuwmd);
	expect_ended_by_the_watcher();
}

static void fill_the_log(int sock)
{
	struct pollfd writable = {.fd = STDERR_FILENO, .events = POLLOUT};
	static const char page[4096];

	(void)sock;
	while (poll(&writable, 1, 0) == 1 && write(STDERR_FILENO, page, sizeof(page)) > 0)
		;
}

Test(watcher, a_log_that_nobody_reads_does_not_hold_it, .timeout = 120)
{
	start(fill_the_log);
	close(gpuwmd);
	cr_assert(ends_within(SOON_MS), "it lives on");
	cr_expect(WIFEXITED(status()));
}

/* Ends by itself soon, with what it has to tell. */
static void leave_by_itself(int sock)
{
	struct pollfd hang_up = {.fd = sock};

	if (watcher_start(sock) < 0)
		_exit(99);
	poll(&hang_up, 1, -1);
	poll(NULL, 0, WATCHER_PATIENCE_MS / 4);
	_exit(7);
}

Test(watcher, a_loader_that_notices_ends_by_itself, .timeout = 120)
{
	start(leave_by_itself);
	close(gpuwmd);
	cr_assert(ends_within(SOON_MS));
	cr_expect_eq(WEXITSTATUS(status()), 7);
}

static void without_descriptors(int sock)
{
	struct rlimit files = {(rlim_t)sock + 1, (rlim_t)sock + 1};

	while (dup(sock) >= 0)
		;
	setrlimit(RLIMIT_NOFILE, &files);
	_exit(watcher_start(sock) == -EMFILE ? 7 : 1);
}

Test(watcher, without_descriptors_it_says_so, .timeout = 120)
{
	start(without_descriptors);
	cr_expect_eq(WEXITSTATUS(status()), 7);
	close(gpuwmd);
}
