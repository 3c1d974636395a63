/* Sockets that are closed on the thread pool. */
#include "daemon/net/net.h"
#include "tests/support/any/fd_count.h"

#include <criterion/criterion.h>
#include <fcntl.h>

static uv_loop_t loop;
static struct discard *discard;
static int fds_before;

static void setup(void)
{
	cr_assert_eq(uv_loop_init(&loop), 0);
	fds_before = fd_count();
	discard = discard_new(&loop);
	cr_assert(discard);
}

static void teardown(void)
{
	discard_free(discard);
	uv_run(&loop, UV_RUN_DEFAULT);
	cr_expect_eq(fd_count(), fds_before);
	cr_assert_eq(uv_loop_close(&loop), 0);
}

TestSuite(discard, .init = setup, .fini = teardown, .timeout = 60);

static void hand_over(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

		cr_assert(fd >= 0);
		discard_socket(discard, fd);
	}
}

Test(discard, closes_what_it_is_given)
{
	hand_over(3);
	uv_run(&loop, UV_RUN_DEFAULT);
	cr_expect_eq(fd_count(), fds_before);
	hand_over(2);
	uv_run(&loop, UV_RUN_DEFAULT);
	cr_expect_eq(fd_count(), fds_before);
}

Test(discard, holds_no_more_than_two_batches)
{
	hand_over(5 * DISCARD_MAX);
	cr_expect(fd_count() - fds_before <= 2 * DISCARD_MAX, "%d", fd_count() - fds_before);
	uv_run(&loop, UV_RUN_DEFAULT);
	cr_expect_eq(fd_count(), fds_before);
}

Test(discard, that_ends_closes_the_rest)
{
	hand_over(DISCARD_MAX);
}
