/* An old keeper that is there and says nothing, as in a paused container: the new one does not wait for ever. */
#include "keeper/take_over.h"
#include "tests/support/any/fd_count.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* The time that was slept in place of the keeper; -1: sleep in earnest, as Criterion's own code and threads do. */
static _Thread_local int slept_ms = -1;
static int old_end;
/* The new keeper is told to stop, and the old one answers after the new one has looked for that. */
static bool stop_and_answer;

int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
	struct timespec limit = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};

	if (slept_ms < 0)
		return (int)syscall(SYS_ppoll, fds, count, timeout_ms < 0 ? NULL : &limit, NULL, 0);
	slept_ms += timeout_ms;
	return 0;
}

int sigpending(sigset_t *ret)
{
	sigemptyset(ret);
	if (stop_and_answer) {
		send(old_end, "YOURS ", 6, 0);
		sigaddset(ret, SIGTERM);
	}
	return 0;
}

static struct take_over *t;
static int fds_before;

static void setup(void)
{
	cr_redirect_stderr();
	fds_before = fd_count();
	t = calloc(1, sizeof(*t));
	cr_assert(t);
	link_open(&t->link, -1);
}

static void finish(void)
{
	take_over_end(t);
	free(t);
	cr_assert_eq(fd_count(), fds_before, "descriptors are left open");
}

TestSuite(keeper_take_over, .init = setup, .fini = finish);

static void connect_both(void)
{
	int ends[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	link_open(&t->link, ends[0]);
	old_end = ends[1];
}

static int sleep_end(void)
{
	int slept = slept_ms;

	slept_ms = -1;
	return slept;
}

static enum take_over_result taken(int *ret_slept_ms)
{
	enum take_over_result result;

	slept_ms = 0;
	result = take_over_taken(t);
	*ret_slept_ms = sleep_end();
	return result;
}

static int begin(const char *path, struct store *store, struct take_over_socket *sock, int *ret_slept_ms)
{
	int r;

	slept_ms = 0;
	r = take_over_begin(t, path, 0, store, sock);
	*ret_slept_ms = sleep_end();
	return r;
}

Test(keeper_take_over, an_old_keeper_that_does_not_answer_keeps_its_store)
{
	char text[16];
	int slept;

	connect_both();
	cr_expect_eq(taken(&slept), TAKE_OVER_LOST);
	cr_expect_eq(slept, 10000);
	cr_expect(t->lost && !take_over_is_open(t));
	/* When it runs again, it finds out. */
	cr_expect_eq(recv(old_end, text, sizeof(text), 0), 6);
	cr_expect_eq(send(old_end, "YOURS ", 6, MSG_NOSIGNAL), -1);
	close(old_end);
}

/* Nobody has the store otherwise. */
Test(keeper_take_over, an_answer_at_the_last_moment_counts)
{
	int slept;

	connect_both();
	stop_and_answer = true;
	cr_expect_eq(taken(&slept), TAKE_OVER_OURS);
	cr_expect_not(t->lost);
	close(old_end);
}

Test(keeper_take_over, an_old_keeper_that_hands_nothing_over_is_given_up)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct take_over_socket sock;
	char dir[] = "/tmp/gpuwm-take-over-XXXXXX", path[64], lock[80];
	struct store store;
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), slept;

	cr_assert(mkdtemp(dir) && store_init(&store, 10) == 0);
	snprintf(path, sizeof(path), "%s/sock", dir);
	snprintf(lock, sizeof(lock), "%s.lock", path);
	strcpy(address.sun_path, path);
	cr_assert(bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
		  listen(listener, 1) == 0);
	cr_expect_eq(begin(path, &store, &sock, &slept), -ETIMEDOUT);
	cr_expect_eq(slept, 240000);
	cr_expect(t->lost);
	take_over_socket_close(&sock);
	store_clear(&store);
	close(listener);
	cr_assert(unlink(path) == 0 && unlink(lock) == 0 && rmdir(dir) == 0);
}

Test(keeper_take_over, a_socket_that_is_closed_leaves_its_lock_to_the_next_keeper)
{
	char dir[] = "/tmp/gpuwm-take-over-XXXXXX", path[64], lock[80];
	struct take_over_socket sock;
	int peer, next;

	cr_assert(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/sock", dir);
	snprintf(lock, sizeof(lock), "%s.lock", path);
	cr_assert_eq(take_over_socket_find(&sock, path, &peer), 0);
	next = open(lock, O_RDWR | O_CLOEXEC);
	cr_expect_lt(flock(next, LOCK_EX | LOCK_NB), 0);
	take_over_socket_close(&sock);
	cr_expect_eq(flock(next, LOCK_EX | LOCK_NB), 0);
	close(next);
	cr_assert(unlink(path) == 0 && unlink(lock) == 0 && rmdir(dir) == 0);
}

/* Not a lock at the beginning of the path. */
Test(keeper_take_over, a_path_that_is_too_long_makes_no_file)
{
	char path[200] = "/tmp/gpuwm-take-over-";
	struct take_over_socket sock;
	int peer;

	memset(path + strlen(path), 'x', 150);
	cr_expect_eq(take_over_socket_find(&sock, path, &peer), -ENAMETOOLONG);
	path[112] = 0;
	cr_expect_eq(access(path, F_OK), -1);
	unlink(path);
}
