/* Signals whose handlers interrupt system calls (no SA_RESTART) are nothing that a caller of the library sees. */
#include "client/lib/request/client.h"
#include "memory/memory.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "tests/support/lib/fake.h"

#define EXPORT __attribute__((visibility("default")))

static unsigned interruptions; /* how many more calls fail with EINTR */

static bool is_interrupted(void)
{
	if (interruptions == 0)
		return false;
	interruptions--;
	errno = EINTR;
	return true;
}

/* These come before libc's. */
EXPORT int connect(int sock, const struct sockaddr *address, socklen_t bytes)
{
	return is_interrupted() ? -1 : (int)syscall(SYS_connect, sock, address, bytes);
}

EXPORT int madvise(void *address, size_t bytes, int advice)
{
	if (advice == MADV_POPULATE_READ && is_interrupted())
		return -1;
	return (int)syscall(SYS_madvise, address, bytes, advice);
}

static struct fake *fake;
static volatile sig_atomic_t signals;

static void on_alarm(int number)
{
	(void)number;
	signals++;
}

/* The fake's thread gets none: it inherits the mask. */
static void setup(void)
{
	struct sigaction action = {.sa_handler = on_alarm}; /* no SA_RESTART */
	sigset_t alarm_only;

	sigemptyset(&alarm_only);
	sigaddset(&alarm_only, SIGALRM);
	cr_assert(eq(int, sigaction(SIGALRM, &action, NULL), 0));
	pthread_sigmask(SIG_BLOCK, &alarm_only, NULL);
	fake = fake_start();
	pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
}

static void storm(suseconds_t every_us)
{
	const struct itimerval every = {{0, every_us}, {0, every_us}};

	cr_assert(eq(int, setitimer(ITIMER_REAL, &every, NULL), 0));
}

static void teardown(void)
{
	storm(0);
	fake_stop(fake);
}

TestSuite(signals, .init = setup, .fini = teardown, .timeout = 60);

static struct gpuwm_client *connected(void)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_client *client;

	options.socket = fake->path;
	cr_assert(eq(int, gpuwm_connect(&options, &client), 0), "%s", gpuwm_error()->message);
	return client;
}

Test(signals, a_connect_that_is_interrupted_goes_on)
{
	struct gpuwm_client *client;

	interruptions = 5;
	client = connected();
	cr_assert(eq(u32, interruptions, 0));
	gpuwm_close(client);
}

Test(signals, a_storm_of_them_reaches_no_caller)
{
	storm(100);
	for (int i = 0; i < 200 || signals < 100; i++) {
		struct gpuwm_client *client = connected();
		uint64_t ns = 0;

		cr_assert(eq(int, gpuwm_ping(client, &ns), 0), "%s", gpuwm_error()->message);
		gpuwm_close(client);
	}
}

Test(signals, populating_that_is_interrupted_goes_on)
{
	const struct memory_ops *ops = &memory_host;
	struct memory_device device;
	struct memory_segment segment;
	struct error error;

	cr_assert(eq(int, memory_device_open("host", &device, NULL), 0));
	cr_assert(eq(int, ops->create(&device, 8192, &segment, &error), 0));
	cr_assert(eq(int, ops->map(&device, &segment, MEMORY_WRITE, &error), 0));
	interruptions = 5;
	cr_assert(eq(int, ops->populate(&device, &segment, 1, &error), 0), "%s", error.message);
	cr_assert(eq(u32, interruptions, 0));
	ops->unmap(&device, &segment);
	ops->release(&device, &segment);
}
