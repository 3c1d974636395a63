#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ARGUMENTS_MAX 16
#define WORD_TIMEOUT_MS 300000 /* each test has a limit of its own */

int64_t clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

void poll_pause(int64_t began_ms)
{
	int64_t ms = (clock_ms() - began_ms) / 8;

	ms = ms < 1 ? 1 : ms > 10 ? 10 : ms;
	nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* ---- libraries that programs load first -------------------------------- */

static char preloaded[1024]; /* the libraries of every test */

__attribute__((constructor)) static void preload_begin(void)
{
	const char *given = getenv("LD_PRELOAD");

	snprintf(preloaded, sizeof preloaded, "%s", given ? given : "");
	if (geteuid() == 0 || strstr(preloaded, "/dumpable.so"))
		return;
	preload("dumpable");
	snprintf(preloaded, sizeof preloaded, "%s", getenv("LD_PRELOAD"));
}

void preload(const char *name)
{
	char text[2048];

	snprintf(text, sizeof text, "%s/tests/preload/%s.so:%s", build_path(), name ? name : "", preloaded);
	setenv("LD_PRELOAD", name ? text : preloaded, 1);
}

/* ---- children ---------------------------------------------------------- */

/* Criterion owns main: a child is this program again, which runs a function
 * (its distance from this one) and leaves before main. */
__attribute__((constructor)) static void child_main(int argc, char **argv)
{
	const char *role = getenv("GPUWM_TEST_ROLE");
	process_fn *fn;

	if (!role)
		return;
	fn = (process_fn *)((uintptr_t)&child_main + (uintptr_t)strtoull(role, NULL, 16));
	unsetenv("GPUWM_TEST_ROLE");
	exit(fn(argc - 1, argv + 1));
}

static void child_exec(process_fn *fn, char *const *argv, int in, int out)
{
	char role[32];

	/* Clear of the numbers they are to have. */
	in = fcntl(in, F_DUPFD_CLOEXEC, 10);
	out = fcntl(out, F_DUPFD_CLOEXEC, 10);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(in, CHILD_IN);
	dup2(out, CHILD_OUT);
	close_range(CHILD_OUT + 1, ~0u, CLOSE_RANGE_CLOEXEC);
	snprintf(role, sizeof role, "%jx", (uintmax_t)((uintptr_t)fn - (uintptr_t)&child_main));
	setenv("GPUWM_TEST_ROLE", role, 1);
	execv("/proc/self/exe", argv);
	_exit(127);
}

struct process process_start(process_fn *fn, ...)
{
	char *argv[ARGUMENTS_MAX + 2] = {"system-tests"};
	struct process p;
	int in[2], out[2];
	va_list list;

	va_start(list, fn);
	for (int i = 1; i <= ARGUMENTS_MAX && (argv[i] = va_arg(list, char *)); i++)
		;
	va_end(list);
	cr_assert(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
	p.pid = fork();
	cr_assert(p.pid >= 0, "fork: %s", strerror(errno));
	if (p.pid == 0)
		child_exec(fn, argv, in[0], out[1]);
	close(in[0]);
	close(out[1]);
	p.to = in[1];
	p.from = out[0];
	p.pidfd = (int)syscall(SYS_pidfd_open, p.pid, 0);
	return p;
}

char process_hear(struct process *p)
{
	struct pollfd ready = {.fd = p->from, .events = POLLIN};
	char said = 0;

	cr_assert(poll(&ready, 1, WORD_TIMEOUT_MS) == 1, "a child says nothing");
	cr_assert(read(p->from, &said, 1) == 1, "a child ended without a word");
	return said;
}

void process_expect(struct process *p, char word)
{
	char said = process_hear(p);

	cr_assert(said == word, "a child said '%c' instead of '%c'", said, word);
}

void process_tell(struct process *p, char word)
{
	cr_assert(write(p->to, &word, 1) == 1);
}

int process_join(struct process *p)
{
	struct pollfd ready = {.fd = p->pidfd, .events = POLLIN};
	int status = -1;

	cr_assert(p->pidfd < 0 || poll(&ready, 1, WORD_TIMEOUT_MS) == 1, "a child does not end");
	cr_assert(waitpid(p->pid, &status, 0) == p->pid);
	close(p->to);
	close(p->from);
	close(p->pidfd);
	p->pid = 0;
	return status;
}

void process_finish(struct process *p)
{
	int status = process_join(p);

	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child ended with status %#x", status);
}

void process_kill(struct process *p, int signal_number)
{
	cr_assert(kill(p->pid, signal_number) == 0);
	process_join(p);
}

bool died_of_fault(int status)
{
	/* The sanitizer turns the signal into an exit code. */
	if (SANITIZED && WIFEXITED(status))
		return WEXITSTATUS(status) != 0;
	return WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGABRT);
}

void child_say(char word)
{
	CHILD_ASSERT(write(CHILD_OUT, &word, 1) == 1);
}

char child_hear(void)
{
	char word = 0;

	return read(CHILD_IN, &word, 1) == 1 ? word : 0;
}

void child_fail(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: child: %s (%s: %s)\n", file, line, what, gpuwm_error()->name,
		gpuwm_error()->message);
	_exit(99);
}

int worker_hold(int argc, char **argv)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;

	CHILD_ASSERT(argc == 3);
	options.device = argv[1][0] ? argv[1] : NULL;
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(gpuwm_attach(client, argv[0], &options, &mapping) == 0);
	child_say('a');
	switch (child_hear()) {
	case 'd':
		CHILD_ASSERT(mapping_holds(mapping, strtoull(argv[2], NULL, 10)));
		CHILD_ASSERT(gpuwm_detach(mapping) == 0);
		gpuwm_close(client);
		return 0;
	case 'e':
		CHILD_ASSERT(mapping_holds(mapping, strtoull(argv[2], NULL, 10)));
		_exit(0);
	default:
		return 1;
	}
}

struct process worker_start(struct gpuwmd *d, const char *ref, uint64_t seed)
{
	char text[24];
	struct process p;

	snprintf(text, sizeof text, "%ju", (uintmax_t)seed);
	p = process_start(worker_hold, ref, d->device, text, NULL);
	process_expect(&p, 'a');
	return p;
}

void worker_reads(struct gpuwmd *d, const char *ref, uint64_t seed)
{
	struct process worker = worker_start(d, ref, seed);

	process_tell(&worker, 'd');
	process_finish(&worker);
}

static struct ctl_run ctl_launch(const char *argument, va_list list)
{
	char *argv[ARGUMENTS_MAX + 2] = {"gpuwmctl", (char *)argument};
	struct ctl_run run;
	char program[512];
	int out[2];

	for (int i = 2; argument && i <= ARGUMENTS_MAX && (argv[i] = va_arg(list, char *)); i++)
		;
	snprintf(program, sizeof program, "%s/bin/gpuwmctl", build_path());
	cr_assert(pipe2(out, O_CLOEXEC) == 0);
	run.pid = fork();
	if (run.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
		dup2(out[1], 1);
		dup2(out[1], 2);
		execv(program, argv);
		_exit(126);
	}
	close(out[1]);
	run.from = out[0];
	return run;
}

struct ctl_run ctl_start(const char *argument, ...)
{
	struct ctl_run run;
	va_list list;

	va_start(list, argument);
	run = ctl_launch(argument, list);
	va_end(list);
	return run;
}

int ctl_join(struct ctl_run *run, char *ret_output, size_t size)
{
	size_t used = 0;
	ssize_t got;
	int status;

	while (used + 1 < size && (got = read(run->from, ret_output + used, size - used - 1)) > 0)
		used += (size_t)got;
	ret_output[used] = 0;
	close(run->from);
	cr_assert(waitpid(run->pid, &status, 0) == run->pid);
	return status;
}

char output[65536];

void ctl_ends(struct ctl_run *run, int code)
{
	int status = ctl_join(run, output, sizeof output);

	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == code, "status %#x: %s", status, output);
}

int ctl(char *ret_output, size_t size, const char *argument, ...)
{
	struct ctl_run run;
	va_list list;
	int status;

	va_start(list, argument);
	run = ctl_launch(argument, list);
	va_end(list);
	status = ctl_join(&run, ret_output, size);
	cr_assert(WIFEXITED(status), "gpuwmctl %s: status %#x: %s", argument, status, ret_output);
	return WEXITSTATUS(status);
}

bool process_is_named(pid_t pid, const char *beginning)
{
	char path[64], name[32] = "";
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
	file = fopen(path, "re");
	if (file && !fgets(name, sizeof name, file))
		name[0] = '\0';
	if (file)
		fclose(file);
	return strncmp(name, beginning, strlen(beginning)) == 0;
}
