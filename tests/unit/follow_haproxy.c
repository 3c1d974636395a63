/* gpuwm-follow talks to a HAProxy whose socket fails. */
#include "follow/balancer.h"
#include "tests/support/follow/haproxy.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of this thread only: the fake HAProxy is another one. */
static _Thread_local bool reading_fails;

__attribute__((visibility("default"))) ssize_t recv(int sock, void *data, size_t bytes, int flags)
{
	if (reading_fails) {
		errno = EIO;
		return -1;
	}
	return syscall(SYS_recvfrom, sock, data, bytes, flags, NULL, NULL);
}

/* Leaves bytes where the next function has its locals: whoever uses one that was never set crashes. */
__attribute__((noinline)) static void poison_stack(void)
{
	char locals[8192];

	memset(locals, 0x41, sizeof(locals));
	__asm__ volatile("" : : "r"(locals) : "memory");
}

/* The code is also that of a refusal, which comes with an answer. */
Test(haproxy, an_error_while_reading_has_no_answer, .timeout = 60)
{
	struct fake_haproxy *fake = fake_haproxy_start();
	struct error error = {0};

	reading_fails = true;
	poison_stack();
	cr_expect_eq(haproxy_set(fake->path, "set server b/w1 state drain", &error), -EIO);
	cr_expect(strstr(error.message, "set server b/w1 state drain: "), "%s", error.message);
	reading_fails = false;
	fake_haproxy_stop(fake);
}
