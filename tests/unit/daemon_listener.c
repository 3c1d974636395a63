/* A socket of the daemon's own when descriptors run out. */
#include "tests/support/daemon/server.h"

#include "daemon/net/listener.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

static char folder[] = "/tmp/gpuwm-listener-XXXXXX";

static void setup(void)
{
	struct listener_sockets left = {-1, -1};
	struct error error;

	server_open();
	cr_assert(mkdtemp(folder));
	snprintf(config.socket, sizeof(config.socket), "%s/s", folder);
	config.group[0] = '\0';
	cr_assert_eq(listener_open(&server->net, SESSION_WORKER, &left, &server->listeners[0], &error), 0, "%s",
		     error.message);
	cr_assert_eq(listener_start(server->listeners[0], &error), 0, "%s", error.message);
}

static void teardown(void)
{
	char lock[sizeof(config.socket) + 8];

	snprintf(lock, sizeof(lock), "%s.lock", config.socket);
	unlink(lock);
	server_close();
	cr_expect_eq(rmdir(folder), 0);
}

TestSuite(listener, .init = setup, .fini = teardown, .timeout = 120);

static int dial(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(address.sun_path, config.socket, strlen(config.socket) + 1);
	cr_assert_eq(connect(sock, (struct sockaddr *)&address, sizeof(address)), 0);
	return sock;
}

static bool loop_has_work(void)
{
	struct pollfd loop = {.fd = uv_backend_fd(&server->loop), .events = POLLIN};

	return poll(&loop, 1, 0) > 0;
}

/* No descriptor above the standard ones can be made. */
static rlim_t limit_files(rlim_t soft)
{
	struct rlimit limit;
	rlim_t before;

	getrlimit(RLIMIT_NOFILE, &limit);
	before = limit.rlim_cur;
	limit.rlim_cur = soft;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	return before;
}

Test(listener, without_even_its_spare_descriptor_it_rests_and_looks_again)
{
	int sock = dial();
	rlim_t before;

	before = limit_files(3);
	turn();
	cr_expect_not(loop_has_work(), "a connection that can't be taken keeps the loop busy");
	cr_expect_eq(server->net.session_count, 0);
	limit_files(before);
	TURN_UNTIL(server->net.session_count == 1);
	say_hello(sock);
	close(sock);
	turn();
}

Test(listener, with_its_spare_descriptor_it_refuses_and_goes_on)
{
	int first = dup(0), sock = dial(), second;
	rlim_t before;

	second = dup(0);
	close(second);
	close(first);
	before = limit_files((rlim_t)second);
	first = dup(0);
	cr_assert(first >= 0);
	cr_expect_eq(answered(sock), -EMFILE);
	cr_expect(is_ended(sock));
	limit_files(before);
	close(first);
	close(sock);
}

/* The first of them are its burst: as many as it may have, and one that is told so. */
Test(listener, who_connects_too_often_is_refused_and_others_are_not)
{
	int socks[4];

	config.quota.per_uid[QUOTA_SESSIONS] = 1;
	config.connects_per_second = 1;
	for (size_t i = 0; i < 4; i++)
		socks[i] = dial();
	turn();
	cr_expect_eq(answered(socks[2]), -EAGAIN);
	cr_expect(strstr(message.error.message, "more often than 1 times a second"), "%s",
		  message.error.message);
	cr_expect(strstr(message.error.detail, "connects_per_second"), "%s", message.error.detail);
	cr_expect_not(message.has_id);
	TURN_UNTIL(is_ended(socks[2])); /* it is closed on another thread */
	cr_expect_eq(answered(socks[3]), -EAGAIN);
	/* The configuration was read again. */
	config.connects_per_second = 1000;
	config.quota.per_uid[QUOTA_SESSIONS] = 10;
	for (size_t i = 0; i < 4; i++)
		close(socks[i]);
	socks[0] = dial();
	TURN_UNTIL(server->net.session_count == 1);
	say_hello(socks[0]);
	close(socks[0]);
	turn();
}

/* A backlog of thousands does not hold up those who are connected. */
Test(listener, takes_few_at_a_time)
{
	enum { MANY = 400 };
	int greeted_one = dial(), socks[MANY];

	TURN_UNTIL(server->net.session_count == 1);
	say_hello(greeted_one);
	for (size_t i = 0; i < MANY; i++)
		socks[i] = dial();
	send_plain(greeted_one, 7, "ping");
	/* All are one user's. A turn may end after one arrival, and the request comes after it. */
	for (int turns = 0; turns < 2; turns++)
		uv_run(&server->loop, UV_RUN_NOWAIT);
	cr_expect_eq(packet_receive(greeted_one, true, &packet), 1, "the answer waits for all of them");
	cr_expect_leq(server->net.session_count, MANY, "all were taken at once");
	TURN_UNTIL(server->net.session_count == MANY + 1);
	for (size_t i = 0; i < MANY; i++)
		close(socks[i]);
	close(greeted_one);
	TURN_UNTIL(server->net.session_count == 0);
}

Test(listener, without_a_descriptor_to_spare_it_is_not_opened)
{
	struct listener_sockets left = {-1, -1};
	struct error error;
	rlim_t before = limit_files(0);

	cr_expect_eq(listener_open(&server->net, SESSION_ADMIN, &left, &server->listeners[1], &error), -EMFILE);
	limit_files(before);
	cr_expect_null(server->listeners[1]);
	cr_expect(strstr(error.message, "a descriptor to spare for"), "%s", error.message);
	cr_expect(strstr(error.detail, "RLIMIT_NOFILE"), "%s", error.detail);
}

/* These stand before those of libc, and fail when they are told to. */
static bool lstat_fails, getsockname_fails;

__attribute__((visibility("default"))) int lstat(const char *restrict path, struct stat *restrict ret)
{
	errno = EIO;
	return lstat_fails ? -1 : (int)syscall(SYS_lstat, path, ret);
}

__attribute__((visibility("default"))) int getsockname(int sock, struct sockaddr *restrict ret,
						       socklen_t *restrict bytes)
{
	errno = ENOBUFS;
	return getsockname_fails ? -1 : (int)syscall(SYS_getsockname, sock, ret, bytes);
}

/* What the last gpuwmd listened on: who connects while gpuwmd restarts waits in it. */
static int kept_socket(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	memcpy(address.sun_path, config.admin_socket, strlen(config.admin_socket) + 1);
	cr_assert_eq(bind(sock, (struct sockaddr *)&address, sizeof(address)), 0);
	return sock;
}

Test(listener, a_kept_socket_is_not_given_up_because_it_can_not_be_looked_at)
{
	struct listener_sockets left = {-1, -1};
	char lock[sizeof(config.admin_socket) + 8];
	struct error error;
	int sock;

	snprintf(config.admin_socket, sizeof(config.admin_socket), "%s/a", folder);
	snprintf(lock, sizeof(lock), "%s.lock", config.admin_socket);
	sock = kept_socket();
	lstat_fails = true;
	left.kept = dup(sock);
	cr_expect_eq(listener_open(&server->net, SESSION_ADMIN, &left, &server->listeners[1], &error), -EIO);
	cr_expect(strstr(error.message, "could not look at the socket"), "%s", error.message);
	lstat_fails = false;
	getsockname_fails = true;
	left.kept = dup(sock);
	cr_expect_eq(listener_open(&server->net, SESSION_ADMIN, &left, &server->listeners[1], &error),
		     -ENOBUFS);
	getsockname_fails = false;
	cr_expect_eq(unlink(config.admin_socket), 0, "its file is gone");
	unlink(lock);
	close(sock);
}
