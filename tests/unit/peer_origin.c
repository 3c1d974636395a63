/* Where connections come from. */
#include "peer/listener.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

static int listener;
static struct sockaddr_in at = {.sin_family = AF_INET};

static void begin(void)
{
	socklen_t bytes = sizeof(at);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(listener, (struct sockaddr *)&at, bytes), 0);
	cr_assert_eq(listen(listener, 16), 0);
	getsockname(listener, (struct sockaddr *)&at, &bytes);
}

TestSuite(origin, .init = begin);

static struct origin accepted(void)
{
	struct origin origin;
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	cr_assert_geq(fd, 0);
	origin = origin_of(fd);
	close(fd);
	return origin;
}

/* From a process of this user, which keeps its connection until it is killed. */
static struct origin come_as(uid_t uid)
{
	struct origin origin;
	pid_t child = fork();

	if (child == 0) {
		if (uid != geteuid() && setuid(uid) < 0)
			_exit(1);
		connect(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), (struct sockaddr *)&at, sizeof(at));
		pause();
	}
	origin = accepted();
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return origin;
}

Test(origin, a_user_of_this_machine_is_known_by_its_uid)
{
	struct origin own = come_as(geteuid()), other;

	if (!own.has_uid)
		cr_skip_test("this kernel does not tell whose socket it is");
	cr_expect_eq(own.uid, geteuid());
	if (geteuid() != 0)
		return;
	other = come_as(NOBODY);
	cr_expect(other.has_uid);
	cr_expect_eq(other.uid, NOBODY);
	cr_expect_not(origin_same(&own, &other));
}

Test(origin, an_address_is_one_unless_a_user_is_known)
{
	const struct origin a = {.family = AF_INET, .address = {10, 0, 0, 1}}, b = a;
	const struct origin c = {.family = AF_INET, .address = {10, 0, 0, 2}};
	struct origin user = a;

	cr_expect(origin_same(&a, &b));
	cr_expect_not(origin_same(&a, &c));
	user.has_uid = true;
	cr_expect_not(origin_same(&a, &user));
}
