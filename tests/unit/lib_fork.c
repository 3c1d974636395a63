/* A fork in the middle of a call: the child keeps no descriptor of the library. */
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/support/lib/switch.h"

#include <dlfcn.h>

static _Thread_local unsigned until_fork; /* allocations of this thread; 0: none is awaited */
static _Thread_local int kept; /* by the child */
static int fakes; /* the fake's own, which it has from elsewhere */

/* Memfds that are close-on-exec, as the library's are and those that the fake makes for a reply are not. Without
 * malloc, whose locks may be another thread's of the parent. */
static int memfds(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++) {
		int flags = fcntl(fd, F_GETFD);

		count += flags >= 0 && flags & FD_CLOEXEC && fcntl(fd, F_GET_SEALS) > 0;
	}
	return count;
}

static void fork_now(void)
{
	int status;
	pid_t child = fork();

	if (child == 0)
		_exit(memfds());
	waitpid(child, &status, 0);
	kept = WIFEXITED(status) ? WEXITSTATUS(status) - fakes : -1;
}

#define OWN __attribute__((visibility("default"))) __attribute__((no_sanitize("address", "undefined")))

OWN void *malloc(size_t bytes)
{
	static void *(*next)(size_t);

	if (!next)
		next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
	if (until_fork > 0 && --until_fork == 0)
		fork_now();
	return next(bytes);
}

OWN void *calloc(size_t count, size_t bytes)
{
	static void *(*next)(size_t, size_t);

	if (!next)
		next = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
	if (until_fork > 0 && --until_fork == 0)
		fork_now();
	return next(count, bytes);
}

static void setup(void)
{
	switch_setup();
	fakes = memfds();
	cr_assert(fakes > 0);
}

TestSuite(fork, .init = setup, .fini = client_teardown);

/* At the n-th allocation of this thread from now on. False: there was none. */
static bool has_forked(void)
{
	bool yes = until_fork == 0;

	until_fork = 0;
	return yes;
}

static void attach_once(void)
{
	gpuwm_detach(attach_to("m@v1"));
}

static void take_handles(void)
{
	struct gpuwm_handles *handles;

	cr_assert(eq(int, gpuwm_get_handles(client, "m@v1", NULL, &handles), 0), "%s", gpuwm_error()->message);
	gpuwm_handles_release(handles);
}

static void attach_and_switch(void)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");

	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0), "%s", gpuwm_error()->message);
	gpuwm_detach(mapping);
}

/* A fork at each allocation of the call, one after the other. */
static void fork_in(void (*call)(void))
{
	unsigned n = 0;

	do {
		kept = 0;
		until_fork = ++n;
		call();
		cr_assert(eq(int, kept, 0), "at allocation %u", n);
	} while (has_forked());
	cr_assert(n > 5);
}

Test(fork, in_an_attach_leaves_no_descriptor_in_the_child)
{
	fork_in(attach_once);
}

Test(fork, in_getting_handles_leaves_no_descriptor_in_the_child)
{
	fork_in(take_handles);
}

Test(fork, in_a_switch_leaves_no_descriptor_in_the_child)
{
	fork_in(attach_and_switch);
}
