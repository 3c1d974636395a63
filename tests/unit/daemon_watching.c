/* The kernel has no more watches for gpuwmd's user. */
#include "tests/support/daemon/server.h"

#include "daemon/work/jobs/job.h"

#include <sys/epoll.h>
#include <sys/syscall.h>

/* In front of libc's: the n-th descriptor that is added from now on can't be watched. */
static unsigned refuse_at, added;
__attribute__((visibility("default"))) int epoll_ctl(int epoll, int what, int fd, struct epoll_event *event)
{
	if (what == EPOLL_CTL_ADD && ++added == refuse_at) {
		errno = ENOSPC;
		return -1;
	}
	return (int)syscall(SYS_epoll_ctl, epoll, what, fd, event);
}

/* Another connection of this user is there: what all of a user's connections share is watched. */
static int first;

static void setup(void)
{
	server_open();
	first = greeted(SESSION_WORKER);
}

static void teardown(void)
{
	close(first);
	turn();
	server_close();
}

TestSuite(watching, .init = setup, .fini = teardown, .timeout = 120);

/* Its socket, or the process that holds the socket, whose death would not be seen. */
Test(watching, a_connection_that_can_not_be_watched_is_refused)
{
	unsigned refused = 0;
	int sock;

	for (unsigned n = 1;; n++, refused++) {
		sock = connect_as(SESSION_WORKER);
		added = 0;
		refuse_at = n;
		turn();
		refuse_at = 0;
		if (added < n)
			break;
		cr_assert_eq(answered(sock), -ENOMEM);
		cr_expect(strstr(message.error.message, "epoll watches"), "%s", message.error.message);
		cr_expect(strstr(message.error.detail, "fs.epoll.max_user_watches"), "%s",
			  message.error.detail);
		cr_expect(is_ended(sock));
		close(sock);
	}
	cr_expect_eq(refused, 2, "%u", refused);
	say_hello(sock);
	close(sock);
	turn();
}

/* That is no lack of room on the device, which a publish may wait for. */
Test(watching, a_publish_whose_checker_can_not_be_watched_is_refused_for_that)
{
	struct message_writer w;

	begin_request(&w, 2, "publish_begin");
	message_put_text(&w, "name", "m@v1");
	message_put_text(&w, "device", DEVICE_HOST);
	message_put_u64(&w, "bytes", 4096);
	added = 0;
	refuse_at = 1;
	send_request(first, &w);
	turn();
	refuse_at = 0;
	cr_assert_eq(added, 1);
	cr_assert_eq(answered(first), -ENOMEM);
	cr_expect(strstr(message.error.message, "the socket to a checker"), "%s", message.error.message);
	cr_expect_null(server->work.jobs.first, "nothing is left behind");
	cr_expect_null(registry_next_version(server->ledger.registry, NULL, NULL));
}
