/* After a restart gpuwmd moves no version while processes that mapped one may come back. It knows whom to wait for, and waits no longer. */
#include "tiers.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(awaited);

/* No test waits until this grace time is over. */
#define LIMITS_FOREVER "grace_ms = 3600000\n"

static struct gpuwmd *awaited_begin(void)
{
	struct gpuwmd *d = gpuwmd_start_kept(&(const struct kept){.limits = LIMITS_FOREVER});

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	return d;
}

static void awaited_end(struct gpuwmd *d)
{
	CTL_IS(0, "retire", "m@v1", "--aliases", "--force");
	CTL_IS(0, "retire", "m@v2", "--aliases", "--force");
	gpuwmd_stop_empty(d);
}

static uint64_t awaited(struct gpuwmd *d)
{
	json_t *status = query(d->admin, "status", NULL);
	uint64_t count = (uint64_t)json_integer_value(json_object_get(status, "awaited"));

	json_decref(status);
	return count;
}

/* Whether versions move, although the grace time is not over. */
static bool moves(struct gpuwmd *d)
{
	cr_assert_gt(status_of(d, "grace_ms"), 0);
	if (CTL("demote", "m@v2", "--to", "files", "--wait") != 0) {
		SAYS("leases of m@v2 may come back");
		return false;
	}
	CTL_IS(0, "promote", "m@v2", "--wait");
	return true;
}

/* A process with a lease, which never connects again. */
static pid_t process_with_lease(const struct gpuwmd *d)
{
	struct raw_lease lease;
	int ready[2];
	char byte;
	pid_t pid;

	cr_assert_eq(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		if (raw_lease(raw_client(d->socket), "m@v1", &lease) == 0 && write(ready[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	cr_assert_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void process_end(pid_t pid)
{
	kill(pid, SIGKILL);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
}

KILL_AND_STOP_TEST(awaited, who_is_back_is_not_awaited)
{
	struct gpuwmd *d = awaited_begin();
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	struct raw_lease lease;
	int sock = raw_client(d->socket);

	OK(gpuwm_attach(client, "m@v1", NULL, &mapping));
	cr_assert_eq(raw_lease(sock, "m@v1", &lease), 0);
	kept_kill(d, signal_number);
	cr_assert(EVENTUALLY(SOON_MS, awaited(d) == 1), "the library connects by itself");
	cr_assert_not(moves(d), "the other one is alive, and not back");
	close(sock);
	sock = raw_client(d->socket);
	cr_assert_eq(raw_resume_one(d, sock, &lease), 0);
	cr_assert_eq(awaited(d), 0);
	cr_assert(moves(d));
	cr_assert(log_says(d, "all processes that mapped versions are back, or gone"));
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	close(sock);
	awaited_end(d);
}

KILL_AND_STOP_TEST(awaited, who_is_gone_is_not_awaited)
{
	struct gpuwmd *d = awaited_begin();
	pid_t first = process_with_lease(d), second = process_with_lease(d);

	kill(d->pid, SIGSTOP);
	process_end(first);
	kill(d->pid, SIGCONT);
	kept_kill(d, signal_number);
	cr_assert_eq(awaited(d), 1);
	cr_assert_not(moves(d));
	process_end(second);
	cr_assert(EVENTUALLY(SOON_MS, awaited(d) == 0));
	cr_assert(moves(d));
	awaited_end(d);
}

/* Its grace time is over for evictions at once. */
KILL_AND_STOP_TEST(awaited, nobody_is_awaited_if_nobody_was_awake)
{
	struct gpuwmd *d = awaited_begin();
	struct raw_lease parked, released;
	int sock = raw_client(d->socket);

	cr_assert_eq(raw_lease(sock, "m@v1", &parked), 0);
	cr_assert_eq(raw_lease(sock, "m@v1", &released), 0);
	cr_assert_eq(RAW_ASK(sock, "park", NUMBER("lease", parked.lease)), 0);
	cr_assert_eq(RAW_ASK(sock, "release", NUMBER("lease", released.lease)), 0);
	kept_kill(d, signal_number);
	cr_assert_eq(awaited(d), 0);
	cr_assert(moves(d));
	close(sock);
	awaited_end(d);
}

/* Nobody comes back between the two. */
KILL_AND_STOP_TEST(awaited, two_restarts_forget_nobody)
{
	struct gpuwmd *d = awaited_begin();
	struct raw_lease lease;
	int sock = raw_client(d->socket);

	cr_assert_eq(raw_lease(sock, "m@v1", &lease), 0);
	for (int i = 0; i < 3; i++) {
		kept_kill(d, signal_number);
		cr_assert_eq(awaited(d), 1, "restart %d", i);
	}
	cr_assert_not(moves(d));
	close(sock);
	sock = raw_client(d->socket);
	cr_assert_eq(raw_resume_one(d, sock, &lease), 0);
	cr_assert(moves(d));
	close(sock);
	awaited_end(d);
}

/* A process can't say that another one is back. */
KILL_AND_STOP_TEST(awaited, nobody_speaks_for_others)
{
	struct gpuwmd *d = awaited_begin();
	struct raw_lease lease;
	int sock = raw_client(d->socket), status;
	pid_t pid;

	cr_assert_eq(raw_lease(sock, "m@v1", &lease), 0);
	kept_kill(d, signal_number);
	pid = fork();
	if (pid == 0)
		_exit(raw_resume_one(d, raw_client(d->socket), &lease) == 0 ? 0 : 1);
	cr_assert(waitpid(pid, &status, 0) == pid && status == 0);
	cr_assert_eq(awaited(d), 1);
	cr_assert_not(moves(d));
	close(sock);
	sock = raw_client(d->socket);
	raw_resume_one(d, sock, &lease); /* whatever the answer is */
	cr_assert_eq(awaited(d), 0);
	close(sock);
	awaited_end(d);
}

/* Others do not get what a process has that is not back yet. */
KILL_AND_STOP_TEST(awaited, room_is_kept_for_who_is_awaited)
{
	struct gpuwmd *d = awaited_begin();
	struct raw_lease lease;
	int sock = raw_client(d->socket);

	cr_assert_eq(raw_lease(sock, "m@v1", &lease), 0);
	RAW_SEND(sock, 3, "unpark", NUMBER("lease", lease.lease), NUMBER("room", MB(10)));
	cr_assert_eq(raw_code(sock), 0);
	kept_kill(d, signal_number);
	cr_assert_eq(device_number(d, "rooms"), MB(10));
	close(sock);
	sock = raw_client(d->socket);
	cr_assert_eq(raw_resume_one(d, sock, &lease), 0);
	cr_assert_eq(device_number(d, "rooms"), 0, "it says that it has none");
	close(sock);
	awaited_end(d);
}
