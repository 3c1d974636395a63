/* Who may connect to a loader that a service starts. */
#include "../../loader/standby.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int pair[2];
static struct error error;

static void open_pair(void)
{
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
}

static void close_pair(void)
{
	close(pair[0]);
	close(pair[1]);
}

TestSuite(activated, .init = open_pair, .fini = close_pair);

static void expect_error(int code, int expected, const char *says)
{
	cr_expect_eq(code, expected, "%d", code);
	cr_expect(strstr(error.message, says), "\"%s\" does not say \"%s\"", error.message, says);
	cr_expect_neq(error.detail[0], '\0');
}

Test(activated, the_named_user_may_connect)
{
	const struct passwd *self = getpwuid(getuid());
	char number[16];

	snprintf(number, sizeof(number), "%u", (unsigned)getuid());
	cr_expect_eq(activated_peer(pair[0], number, &error), 0, "%s", error.message);
	cr_assert(self, "this user has no name");
	cr_expect_eq(activated_peer(pair[0], self->pw_name, &error), 0, "%s", error.message);
}

/* Run as root, too: root is nobody special. */
Test(activated, nobody_else_may)
{
	char number[16], says[64];

	snprintf(number, sizeof(number), "%u", (unsigned)getuid() + 1);
	snprintf(says, sizeof(says), "a connection of user %u (pid %d) is refused", (unsigned)getuid(),
		 (int)getpid());
	expect_error(activated_peer(pair[0], number, &error), -EACCES, says);
	expect_error(activated_peer(pair[0], "no-such-user", &error), -ENOENT, "there is no user no-such-user");
	expect_error(activated_peer(pair[0], "", &error), -ENOENT, "there is no user");
	expect_error(activated_peer(pair[0], "-1", &error), -ENOENT, "there is no user -1");
	expect_error(activated_peer(pair[0], "4294967295", &error), -ENOENT, "there is no user 4294967295");
}

/* What became of it in a process that systemd started. */
struct outcome {
	int result, sock;
	bool closed, close_on_exec, environment_left;
	struct error error;
};

static struct outcome *outcome;

/* Passes fd (-1: none) as descriptor 3, said to be `count` of them, to a process that takes a connection
 * of `user`: a process of its own, since Criterion has that descriptor. */
static void activate(const char *count, int fd, unsigned user)
{
	char pid[16], number[16];
	pid_t child;

	outcome = mmap(NULL, sizeof(*outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert(outcome != MAP_FAILED);
	outcome->sock = -1;
	child = fork();
	if (child == 0) {
		snprintf(number, sizeof(number), "%u", user);
		snprintf(pid, sizeof(pid), "%d", (int)getpid());
		setenv("LISTEN_PID", pid, 1);
		if (count)
			setenv("LISTEN_FDS", count, 1);
		if (fd >= 0)
			dup2(fd, 3);
		outcome->result = activated_socket(number, &outcome->sock, &outcome->error);
		outcome->closed = fcntl(3, F_GETFD) < 0;
		outcome->close_on_exec = fcntl(3, F_GETFD) & FD_CLOEXEC;
		outcome->environment_left = getenv("LISTEN_FDS");
		_exit(0);
	}
	cr_assert_eq(waitpid(child, NULL, 0), child);
	error = outcome->error;
}

static void activate_own(const char *count, int fd)
{
	activate(count, fd, getuid());
}

Test(activated, takes_its_connection_from_systemd)
{
	activate_own("1", pair[0]);
	cr_assert_eq(outcome->result, 0, "%s", error.message);
	cr_expect_eq(outcome->sock, 3);
	cr_expect(outcome->close_on_exec);
	cr_expect_not(outcome->environment_left);
}

Test(activated, closes_the_connection_of_another_user)
{
	activate("1", pair[0], getuid() + 1);
	expect_error(outcome->result, -EACCES, "is refused");
	cr_expect_eq(outcome->sock, -1);
	cr_expect(outcome->closed);
}

Test(activated, takes_nothing_but_one_connection)
{
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), stream[2];

	activate_own(NULL, pair[0]);
	expect_error(outcome->result, -EINVAL, "0 descriptors were passed");
	activate_own("2", pair[0]);
	expect_error(outcome->result, -EINVAL, "2 descriptors were passed");
	/* Accept=no: it would be the listening socket. */
	cr_assert_eq(bind(listener, &(struct sockaddr){.sa_family = AF_UNIX}, sizeof(sa_family_t)), 0);
	cr_assert_eq(listen(listener, 1), 0);
	activate_own("1", listener);
	expect_error(outcome->result, -EINVAL, "takes one connected socket; 1 descriptor was passed");
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream), 0);
	activate_own("1", stream[0]);
	expect_error(outcome->result, -EINVAL, "takes one connected socket");
	cr_expect_eq(outcome->sock, -1);
}

Test(activated, environment_that_makes_no_sense)
{
	activate_own("many", pair[0]);
	cr_expect_eq(outcome->result, -EINVAL);
	cr_expect(strstr(error.message, "LISTEN_FDS"), "%s", error.message);
}
