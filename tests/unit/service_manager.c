#include "service/manager.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static char folder[] = "/tmp/gpuwm-manager-XXXXXX";
static char path[64];

/* A manager that reads only when it is asked. */
static int listen_at(const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	size_t length = strlen(name);

	memcpy(address.sun_path, name, length);
	if (name[0] == '@')
		address.sun_path[0] = 0;
	cr_assert_eq(bind(sock, (struct sockaddr *)&address,
			  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)),
		     0);
	setenv("NOTIFY_SOCKET", name, 1);
	return sock;
}

static void make_path(void)
{
	cr_assert(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/notify", folder);
}

static void remove_path(void)
{
	unlink(path);
	rmdir(folder);
}

static void expect_heard(int sock, const char *expected)
{
	char text[64];
	ssize_t got = recv(sock, text, sizeof(text) - 1, 0);

	cr_assert_geq(got, 0, "nothing was told");
	text[got] = 0;
	cr_assert_str_eq(text, expected);
}

Test(proto_manager, a_manager_is_told, .init = make_path, .fini = remove_path)
{
	int sock = listen_at(path);

	cr_assert_eq(manager_tell("READY=1\nSTATUS=x"), 0);
	expect_heard(sock, "READY=1\nSTATUS=x");
	close(sock);
}

Test(proto_manager, an_abstract_name_too)
{
	char name[64];
	int sock;

	snprintf(name, sizeof(name), "@gpuwm-manager-%d", (int)getpid());
	sock = listen_at(name);
	cr_assert_eq(manager_tell("WATCHDOG=1"), 0);
	expect_heard(sock, "WATCHDOG=1");
	close(sock);
}

Test(proto_manager, a_full_queue_is_not_waited_for, .init = make_path, .fini = remove_path, .timeout = 120)
{
	int sock = listen_at(path), told = 0;

	while (manager_tell("STATUS=x") == 0)
		told++;
	cr_assert_gt(told, 0);
	cr_assert_eq(manager_tell("READY=1"), -EAGAIN);
	while (told-- > 0)
		expect_heard(sock, "STATUS=x");
	cr_assert_eq(manager_tell("READY=1"), 0);
	expect_heard(sock, "READY=1");
	close(sock);
}

Test(proto_manager, without_a_descriptor_it_is_tried_again, .init = make_path, .fini = remove_path)
{
	int sock = listen_at(path);
	struct rlimit files, none;

	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	none = files;
	none.rlim_cur = 0;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	cr_expect_eq(manager_tell("READY=1"), -EAGAIN);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
	cr_assert_eq(manager_tell("READY=1"), 0);
	expect_heard(sock, "READY=1");
	close(sock);
}

Test(proto_manager, nobody_to_tell_is_no_error)
{
	char text[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];

	unsetenv("NOTIFY_SOCKET");
	cr_expect_eq(manager_tell("READY=1"), 0);
	setenv("NOTIFY_SOCKET", "", 1);
	cr_expect_eq(manager_tell("READY=1"), 0);
	setenv("NOTIFY_SOCKET", "@", 1);
	cr_expect_eq(manager_tell("READY=1"), 0);
	setenv("NOTIFY_SOCKET", "/nonexistent", 1);
	cr_expect_eq(manager_tell("READY=1"), 0);
	memset(text, 'x', sizeof(text));
	text[0] = '/';
	text[sizeof(text) - 1] = 0;
	setenv("NOTIFY_SOCKET", text, 1);
	cr_expect_eq(manager_tell("READY=1"), 0);
}
