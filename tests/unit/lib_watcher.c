/* The thread of the library that takes leases again, and children of the program. */
#include "tests/support/lib/restart.h"
#include "tests/support/any/child.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

static _Atomic bool no_threads;

/* In front of the C library's: fails when it is told to. */
__attribute__((visibility("default"))) int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
							  void *(*function)(void *), void *data)
{
	static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

	if (!next)
		next = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(
			RTLD_NEXT, "pthread_create");
	return no_threads ? EAGAIN : next(thread, attributes, function, data);
}

TestSuite(watcher, .init = restart_setup, .fini = client_teardown);

Test(watcher, needs_a_thread_only_for_leases)
{
	struct gpuwm_connect_options options = to_fake();
	struct gpuwm_mapping *mapping;

	cr_expect(eq(int, gpuwm_ping(client, NULL), 0));
	cr_expect(eq(uint, threads_of_library(), 0));
	cr_expect(eq(int, gpuwm_detach(attach_to("m")), 0));
	mapping = attach_to("m");
	cr_expect(eq(uint, threads_of_library(), 1));
	gpuwm_close(client);
	cr_expect(eq(uint, threads_of_library(), 1));
	gpuwm_detach(mapping);
	cr_expect(eq(uint, threads_of_library(), 0));
	options.flags = GPUWM_CONNECT_ONCE;
	client = client_with(&options);
	cr_expect(eq(int, gpuwm_detach(attach_to("m")), 0));
	cr_expect(eq(uint, threads_of_library(), 0));
}

Test(watcher, says_that_there_can_be_no_thread)
{
	struct gpuwm_connect_options options = to_fake();
	struct gpuwm_mapping *mapping = NULL;

	no_threads = true;
	cr_assert(eq(int, gpuwm_attach(client, "m", NULL, &mapping), -EAGAIN));
	cr_expect(strstr(gpuwm_error()->message, "thread") != NULL);
	cr_expect(strstr(gpuwm_error()->detail, "GPUWM_CONNECT_ONCE") != NULL);
	cr_expect(eq(uint, fake->leases, 0));
	no_threads = false;
	cr_expect(eq(int, gpuwm_detach(attach_to("m")), 0));
	no_threads = true;
	gpuwm_close(client);
	options.flags = GPUWM_CONNECT_ONCE;
	client = client_with(&options);
	cr_expect(eq(int, gpuwm_detach(attach_to("m")), 0));
	no_threads = false;
}

Test(watcher, says_that_there_can_be_no_descriptor)
{
	struct gpuwm_mapping *mapping = NULL;
	struct rlimit limit, none;
	int r;

	getrlimit(RLIMIT_NOFILE, &limit);
	none = limit;
	none.rlim_cur = 3; /* those of the test stay open, and there are no more */
	cr_assert(eq(int, setrlimit(RLIMIT_NOFILE, &none), 0));
	r = gpuwm_attach(client, "m", NULL, &mapping);
	cr_assert(eq(int, setrlimit(RLIMIT_NOFILE, &limit), 0));
	cr_expect(eq(int, r, -EMFILE));
	cr_expect(strstr(gpuwm_error()->message, "restart") != NULL, "%s", gpuwm_error()->message);
	cr_expect(strstr(gpuwm_error()->detail, "RLIMIT_NOFILE") != NULL);
	cr_expect(eq(uint, fake->leases, 0));
	cr_expect(eq(int, gpuwm_detach(attach_to("m")), 0));
}

/* What the kernel says of the thread of this name. */
static uint64_t signals_blocked_by(const char *name)
{
	DIR *folder = opendir("/proc/self/task");
	char path[320], line[128], is[64];
	unsigned long long blocked = 0;

	for (struct dirent *entry; (entry = readdir(folder));) {
		FILE *file;
		bool found = false;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		file = fopen(path, "re");
		while (file && fgets(line, sizeof(line), file)) {
			if (sscanf(line, "Name: %63s", is) == 1)
				found = strcmp(is, name) == 0;
			else if (found)
				sscanf(line, "SigBlk: %llx", &blocked);
		}
		if (file)
			fclose(file);
	}
	closedir(folder);
	return blocked;
}

Test(watcher, gets_none_of_the_programs_signals_but_its_own_faults)
{
	struct gpuwm_mapping *mapping;
	sigset_t before, after;
	uint64_t blocked;

	pthread_sigmask(SIG_SETMASK, NULL, &before);
	mapping = attach_to("m");
	UNTIL(signals_blocked_by("gpuwm-client") != 0);
	blocked = signals_blocked_by("gpuwm-client");
	for (int i = 1; i < NSIG; i++) {
		/* Not the two that nobody can block, those of a thread's own faults, and two of the C library. */
		bool open = i == SIGKILL || i == SIGSTOP ||
			    strchr((char[]){SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, 0}, i) ||
			    i == 32 || i == 33;
		cr_expect(eq(int, blocked >> (i - 1) & 1, !open), "%d", i);
	}
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	for (int i = 1; i < NSIG; i++)
		cr_expect(eq(int, sigismember(&after, i), sigismember(&before, i)));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

/* ---- children ---------------------------------------------------------- */

/* wake: the parent's descriptor of it. */
static int child_of(const struct gpuwm_mapping *mapping, struct gpuwm_client *other, const uint8_t *data,
		    int wake)
{
	if (client->reviver.wake >= 0 || fcntl(wake, F_GETFD) >= 0)
		return 4;
	if (gpuwm_ping(client, NULL) != -ECHILD || gpuwm_mapping_check(mapping) != -ECHILD)
		return 1;
	if (data[255] != 7)
		return 2;
	gpuwm_close(client);
	gpuwm_close(other); /* which frees it: the thread is the parent's */
	return threads() == 1 ? 0 : 3;
}

Test(watcher, is_the_parents_alone)
{
	const struct gpuwm_connect_options options = to_fake();
	struct gpuwm_mapping *mapping = attach_to("m"), *given_back;
	struct gpuwm_client *other = client_with(&options);
	struct gpuwm_tensor tensor;

	cr_assert(eq(int, gpuwm_attach(other, "m", NULL, &given_back), 0));
	cr_assert(eq(int, gpuwm_detach(given_back), 0));
	cr_assert(eq(int, gpuwm_tensor_at(mapping, 0, &tensor), 0));
	for (int away = 0; away < 2; away++) {
		if (away)
			fake_kill(fake);
		cr_expect(eq(int, IN_CHILD(child_of(mapping, other, tensor.data, client->reviver.wake)), 0));
	}
	fake_run_again(fake);
	leases_are(1);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
	gpuwm_close(other);
}

/* A child that lives on holds nothing of its parent's: gpuwmd sees the end of the connection. */
Test(watcher, leaves_no_socket_in_a_child)
{
	struct gpuwm_mapping *mapping = attach_to("m");
	int gate[2];
	char any;
	pid_t child;

	fake_restart();
	leases_are(1);
	cr_assert(eq(int, pipe(gate), 0));
	child = fork();
	if (child == 0) {
		close(gate[1]);
		_exit((int)read(gate[0], &any, 1));
	}
	client = gpuwm_close(client);
	strcpy(fake->refuse, "release");
	error_set(&fake->refusal, -EIO, NULL, "only the end of the connection ends the lease");
	gpuwm_detach(mapping);
	UNTIL(fake->leases == 0);
	close(gate[0]);
	close(gate[1]);
	waitpid(child, NULL, 0);
}
