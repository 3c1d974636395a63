/* A socket's path belongs to one gpuwmd: the next one waits for one that ends, and is refused by one that serves. */
#include "daemon/net/listener.h"
#include "tests/support/any/fd_count.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* Nothing here waits so long: a refusal that took it would run out the test's time. */
#define FOR_EVER_MS 600000

static char folder[] = "/tmp/gpuwm-socket-lock-XXXXXX";
static char path[64], lock_path[72], said[4096];
static struct error error;
static pid_t other;
static int fds_before, stderr_before, log_read;

static void setup(void)
{
	int log[2];

	fds_before = fd_count();
	cr_assert(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/s", folder);
	snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
	stderr_before = dup(STDERR_FILENO);
	cr_assert(pipe2(log, O_CLOEXEC) == 0 && dup2(log[1], STDERR_FILENO) >= 0);
	close(log[1]);
	log_read = log[0];
}

static void teardown(void)
{
	int status;

	dup2(stderr_before, STDERR_FILENO);
	close(stderr_before);
	close(log_read);
	if (other > 0) {
		kill(other, SIGKILL);
		waitpid(other, &status, 0);
	}
	unlink(path);
	unlink(lock_path);
	cr_expect_eq(rmdir(folder), 0);
	cr_expect_eq(fd_count(), fds_before, "descriptors are left open");
}

TestSuite(socket_lock, .init = setup, .fini = teardown, .timeout = 60);

/* What was logged so far. */
static const char *logged(void)
{
	struct pollfd ready = {.fd = log_read, .events = POLLIN};
	size_t used = strlen(said);

	while (poll(&ready, 1, 0) == 1 && ready.revents & POLLIN) {
		ssize_t got = read(log_read, said + used, sizeof(said) - used - 1);

		if (got <= 0)
			break;
		used += (size_t)got;
	}
	return said;
}

static int listen_at(int type)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	strcpy(address.sun_path, path);
	cr_assert(bind(sock, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(sock, 8) == 0);
	return sock;
}

static void lock_file(void)
{
	const struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	cr_assert(fd >= 0 && fcntl(fd, F_SETLK, &whole) == 0);
}

/* What another process does that has the path: */
enum {
	LOCKS = 1,
	LISTENS = 2,
	ANSWERS = 4, /* hello, and goes on */
	ENDS_WHEN_ASKED = 8, /* without an answer */
	ENDS_WHEN_LOGGED = 16, /* that we wait for it */
};

static void act(int acts, int sock)
{
	struct pollfd log = {.fd = log_read, .events = POLLIN};
	char packet[1024];
	int peer;

	if (acts & (ANSWERS | ENDS_WHEN_ASKED)) {
		peer = accept(sock, NULL, NULL);
		if (recv(peer, packet, sizeof(packet), 0) > 0 && acts & ANSWERS)
			send(peer, "an answer", 9, 0);
	}
	if (acts & ENDS_WHEN_LOGGED)
		poll(&log, 1, -1);
	if (!(acts & (ENDS_WHEN_ASKED | ENDS_WHEN_LOGGED)))
		pause();
	_exit(0);
}

/* Returns when the other process has the path. */
static void other_has_it(int acts)
{
	int began[2];
	char byte;

	cr_assert(pipe2(began, O_CLOEXEC) == 0);
	other = fork();
	cr_assert(other >= 0);
	if (other == 0) {
		int sock = -1;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(began[0]);
		if (acts & LOCKS)
			lock_file();
		if (acts & LISTENS)
			sock = listen_at(SOCK_SEQPACKET);
		close(began[1]);
		act(acts, sock);
	}
	close(began[1]);
	cr_assert(read(began[0], &byte, 1) == 0);
	close(began[0]);
}

static void waits_and_locks(void)
{
	char words[160];
	int lock = -1;

	cr_assert_eq(socket_lock_take(path, FOR_EVER_MS, &lock, &error), 0, "%s", error.message);
	close(lock);
	snprintf(words, sizeof(words), "process %d has not let go of %s", (int)other, path);
	cr_assert(strstr(logged(), words), "%s", said);
	cr_assert(!strstr(strstr(said, words) + strlen(words), "let go"), "it is logged twice");
}

Test(socket_lock, a_path_that_nobody_has_is_taken_at_once)
{
	int lock = -1;

	cr_assert_eq(socket_lock_take(path, FOR_EVER_MS, &lock, &error), 0, "%s", error.message);
	cr_expect_eq(socket_lock_check_unserved(path, FOR_EVER_MS, &error), 0);
	close(listen_at(SOCK_SEQPACKET)); /* as a kill leaves the file */
	cr_expect_eq(socket_lock_check_unserved(path, FOR_EVER_MS, &error), 0);
	cr_expect_str_eq(logged(), "");
	close(lock);
}

Test(socket_lock, the_end_of_one_that_answers_nobody_is_waited_for)
{
	other_has_it(LOCKS | LISTENS | ENDS_WHEN_ASKED);
	waits_and_locks();
}

Test(socket_lock, the_end_of_one_that_has_only_its_lock_left_is_waited_for)
{
	other_has_it(LOCKS | ENDS_WHEN_LOGGED);
	waits_and_locks();
}

/* The kernel closes a lock's file before it closes the sockets. */
Test(socket_lock, the_end_of_one_that_has_only_its_socket_left_is_waited_for)
{
	char words[160];

	other_has_it(LISTENS | ENDS_WHEN_ASKED);
	cr_assert_eq(socket_lock_check_unserved(path, FOR_EVER_MS, &error), 0, "%s", error.message);
	snprintf(words, sizeof(words), "process %d has not let go", (int)other);
	cr_expect(strstr(logged(), words) || !said[0], "%s", said);
}

Test(socket_lock, one_that_answers_refuses_at_once)
{
	int lock = -1;

	other_has_it(LOCKS | LISTENS | ANSWERS);
	cr_assert_eq(socket_lock_take(path, FOR_EVER_MS, &lock, &error), -EADDRINUSE);
	cr_expect(strstr(error.message, "another gpuwmd serves"), "%s", error.message);
	cr_expect_eq(lock, -1);
}

Test(socket_lock, one_that_answers_without_a_lock_refuses_at_once)
{
	other_has_it(LISTENS | ANSWERS);
	cr_assert_eq(socket_lock_check_unserved(path, FOR_EVER_MS, &error), -EADDRINUSE);
	cr_expect(strstr(error.message, "another gpuwmd serves"), "%s", error.message);
}

Test(socket_lock, one_that_does_not_end_is_waited_for_so_long)
{
	char words[160];
	int lock = -1;

	other_has_it(LOCKS | LISTENS);
	cr_assert_eq(socket_lock_take(path, 100, &lock, &error), -EBUSY);
	snprintf(words, sizeof(words), "process %d has not let go of %s within 0.1 seconds", (int)other, path);
	cr_expect(strstr(error.message, words), "%s", error.message);
	cr_expect(strstr(error.detail, "end it"), "%s", error.detail);
	cr_assert_eq(socket_lock_check_unserved(path, 100, &error), -EBUSY);
	cr_expect(strstr(error.message, words), "%s", error.message);
}

Test(socket_lock, a_socket_of_another_type_is_another_programs)
{
	int sock = listen_at(SOCK_STREAM);

	cr_assert_eq(socket_lock_check_unserved(path, FOR_EVER_MS, &error), -EADDRINUSE);
	cr_expect(strstr(error.message, "another program"), "%s", error.message);
	close(sock);
}

Test(socket_lock, a_lock_file_that_can_not_be_opened_is_named)
{
	int lock = -1;

	snprintf(path, sizeof(path), "%s/no/such", folder);
	cr_assert_eq(socket_lock_take(path, FOR_EVER_MS, &lock, &error), -ENOENT);
	cr_expect(strstr(error.message, "no/such.lock"), "%s", error.message);
}
