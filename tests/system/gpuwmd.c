#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FLAGS_MAX 48
#define WORDS_MAX (FLAGS_MAX + 24)
#define START_MS 30000
#define LEAVE_MS 300 /* in which a loader leaves after its job, mostly */
#define DAEMONS_MAX 4

/* What this test started, for harness_cleanup. */
static struct gpuwmd *started[DAEMONS_MAX];
static char folders[DAEMONS_MAX][64];
static unsigned started_count, folder_count;

enum backend backend(void)
{
	const char *name = getenv("GPUWM_TEST_BACKEND");

	if (!name || strcmp(name, "host") == 0)
		return BACKEND_HOST;
	return strcmp(name, "cuda") == 0 ? BACKEND_CUDA : BACKEND_FAKECUDA;
}

const char *build_path(void)
{
	static char path[512];
	const char *given = getenv("GPUWM_BUILD");
	ssize_t length;

	if (given)
		return given;
	length = readlink("/proc/self/exe", path, sizeof path - 1);
	path[length > 0 ? length : 0] = 0;
	for (int i = 0; i < 3 && strrchr(path, '/'); i++)
		*strrchr(path, '/') = 0;
	return path;
}

bool build_is_open_to(uid_t uid)
{
	char program[512];
	int status = 1;
	pid_t pid;

	snprintf(program, sizeof program, "%s/bin/gpuwm-loader", build_path());
	pid = fork();
	if (pid == 0)
		_exit(setresuid(uid, uid, uid) < 0 || access(program, X_OK) < 0);
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* ---- folders ---------------------------------------------------------- */

static int entry_remove(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	(void)stat, (void)type, (void)ftw;
	return remove(path);
}

void folder_make(struct gpuwmd *ret)
{
	memset(ret, 0, sizeof *ret);
	snprintf(ret->dir, sizeof ret->dir, "/tmp/gpuwm-test-XXXXXX");
	cr_assert(mkdtemp(ret->dir), "%s: %s", ret->dir, strerror(errno));
	chmod(ret->dir, 0755);
	cr_assert(folder_count < DAEMONS_MAX);
	strcpy(folders[folder_count++], ret->dir);
	snprintf(ret->socket, sizeof ret->socket, "%s/gpuwm.sock", ret->dir);
	snprintf(ret->admin_socket, sizeof ret->admin_socket, "%s/admin.sock", ret->dir);
	snprintf(ret->log, sizeof ret->log, "%s/log", ret->dir);
	snprintf(ret->root, sizeof ret->root, "%s/models", ret->dir);
	snprintf(ret->loader_socket, sizeof ret->loader_socket, "%s/loader.sock", ret->dir);
	cr_assert(mkdir(ret->root, 0755) == 0);
	setenv("GPUWM_SOCKET", ret->socket, 1);
	setenv("FAKECUDA_RUN", strrchr(ret->dir, '-') + 1, 1);
}

static void log_show(const struct gpuwmd *d)
{
	FILE *file = fopen(d->log, "re");
	char line[1024];

	fprintf(stderr, "--- log of the gpuwmd of a failed test:\n");
	while (file && fgets(line, sizeof line, file))
		fputs(line, stderr);
	if (file)
		fclose(file);
}

void harness_cleanup(void)
{
	for (unsigned i = 0; i < started_count; i++) {
		struct gpuwmd *d = started[i];

		if (!d->stopped)
			log_show(d);
		/* A keeper takes its gpuwmd along. */
		if (d->keeper > 0 || d->pid > 0) {
			kill(d->keeper > 0 ? d->keeper : d->pid, SIGKILL);
			waitpid(d->keeper > 0 ? d->keeper : d->pid, NULL, 0);
		}
		if (d->service.pid > 0) {
			kill(d->service.pid, SIGKILL);
			waitpid(d->service.pid, NULL, 0);
		}
		free(d);
	}
	for (unsigned i = 0; i < folder_count; i++)
		nftw(folders[i], entry_remove, 16, FTW_DEPTH | FTW_PHYS);
	started_count = folder_count = 0;
}

_Noreturn void skip(const char *why)
{
	for (unsigned i = 0; i < started_count; i++)
		started[i]->stopped = true; /* nobody wants its log */
	harness_cleanup();
	cr_skip_test("%s", why);
}

/* ---- starting --------------------------------------------------------- */

static void add_words(const char **argv, size_t *count, const char *const *words)
{
	while (words && *words) {
		cr_assert(*count < WORDS_MAX);
		argv[(*count)++] = *words++;
	}
}

pid_t gpuwmd_spawn_by(const struct gpuwmd *d, const char *const *words, const char *const *flags)
{
	const char *argv[WORDS_MAX + 1] = {NULL};
	char program[512];
	size_t count = 0;
	int log;
	pid_t pid;

	snprintf(program, sizeof program, "%s/bin/gpuwmd", build_path());
	add_words(argv, &count, words);
	add_words(argv, &count,
		  (const char *[]){program, "--socket", d->socket, "--admin-socket", d->admin_socket, "--root",
				   d->root, NULL});
	if (d->service.pid > 0)
		add_words(argv, &count, (const char *[]){"--loader-socket", d->loader_socket, NULL});
	add_words(argv, &count, flags);
	pid = fork();
	cr_assert(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	log = open(d->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	dup2(open("/dev/null", O_RDWR | O_CLOEXEC), 0);
	dup2(log, 1);
	dup2(log, 2);
	close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
	execv(argv[0], (char *const *)argv);
	_exit(127);
}

pid_t gpuwmd_spawn(const struct gpuwmd *d, const char *const *flags)
{
	return gpuwmd_spawn_by(d, NULL, flags);
}

/* All its lasting descriptors are open once the standby loader said hello. */
void gpuwmd_wait(struct gpuwmd *d)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	const struct gpuwm_device *devices;
	size_t count;

	options.socket = d->socket;
	options.name = "test";
	options.wait_ms = START_MS;
	options.flags = GPUWM_CONNECT_ADMIN;
	OK(gpuwm_connect(&options, &d->admin));
	cr_assert(EVENTUALLY(START_MS, status_of(d, "standby") == 1), "no standby loader");
	/* hello tells the devices that are known by then. */
	gpuwm_close(d->admin);
	OK(gpuwm_connect(&options, &d->admin));
	cr_assert(EVENTUALLY(START_MS, status_of(d, "sessions") == 1));
	count = gpuwm_devices(d->admin, &devices);
	cr_assert(count >= 1 && strcmp(devices[0].id, "host") == 0);
	if (backend() == BACKEND_HOST) {
		strcpy(d->device, "host");
	} else {
		cr_assert(count >= 2 && devices[1].is_cuda, "no GPU in hello");
		snprintf(d->device, sizeof d->device, "%s", devices[1].id);
	}
	d->fds = fds_of(d->pid);
}

static bool by_service(void)
{
	const char *name = getenv("GPUWM_TEST_LOADER");

	return name && strcmp(name, "socket") == 0;
}

struct gpuwmd *gpuwmd_new(void)
{
	struct gpuwmd *d = calloc(1, sizeof *d);

	cr_assert(d && started_count < DAEMONS_MAX);
	folder_make(d);
	started[started_count++] = d;
	if (by_service())
		service_start(d);
	return d;
}

struct gpuwmd *gpuwmd_start(const char *flag, ...)
{
	const char *flags[FLAGS_MAX + 1] = {flag};
	struct gpuwmd *d;
	va_list list;

	va_start(list, flag);
	for (int i = 1; flag && i < FLAGS_MAX && (flags[i] = va_arg(list, const char *)); i++)
		;
	va_end(list);
	d = gpuwmd_new();
	d->pid = gpuwmd_spawn(d, flags);
	gpuwmd_wait(d);
	return d;
}

struct gpuwm_client *client_new(void)
{
	struct gpuwm_client *client;

	OK(gpuwm_connect(NULL, &client));
	return client;
}

struct gpuwm_client *admin_new(void)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_client *client;

	options.flags = GPUWM_CONNECT_ADMIN;
	OK(gpuwm_connect(&options, &client));
	return client;
}

/* ---- loaders ---------------------------------------------------------- */

size_t loaders_of(pid_t pid, pid_t ret_pids[CHILDREN_MAX])
{
	size_t count = children_of(pid, ret_pids, CHILDREN_MAX);

	for (unsigned i = 0; i < started_count; i++) {
		if (started[i]->pid == pid && started[i]->service.pid > 0)
			count += children_of(started[i]->service.pid, ret_pids + count, CHILDREN_MAX - count);
	}
	return count;
}

/* False for a child of gpuwmd between its fork and its exec, for which gpuwmd waits. */
static bool is_loader(pid_t pid)
{
	return process_is_named(pid, "gpuwm-loader");
}

static bool are_loaders(const struct gpuwmd *d)
{
	pid_t pids[CHILDREN_MAX];
	size_t count = loaders_of(d->pid, pids);

	for (size_t i = 0; i < count; i++) {
		if (!is_loader(pids[i]))
			return false;
	}
	return true;
}

void loaders_kill(struct gpuwmd *d, int signal_number)
{
	pid_t pids[CHILDREN_MAX];
	size_t count;

	EVENTUALLY(SOON_MS, are_loaders(d)); /* stopped before its exec, a child would stop gpuwmd too */
	count = loaders_of(d->pid, pids);
	for (size_t i = 0; i < count; i++)
		kill(pids[i], signal_number);
}

/* ---- stopping --------------------------------------------------------- */

/* Descriptors of the versions that are there: an index and segments a part, and those segments again in a host copy. */
static size_t fds_held(struct gpuwmd *d)
{
	json_t *answer = query(d->admin, "list", NULL), *entry, *part;
	size_t i, j, count = 0;

	json_array_foreach(json_object_get(answer, "versions"), i, entry) {
		const bool copied = json_object_get(entry, "host_copy_bytes");

		json_array_foreach(json_object_get(entry, "parts"), j, part) {
			const char *state = json_string_value(json_object_get(part, "state"));
			const size_t segments = (size_t)json_integer_value(json_object_get(part, "segments"));

			if (state && strcmp(state, "failed") != 0)
				count += 1 + segments + (copied ? segments : 0);
		}
	}
	json_decref(answer);
	return count;
}

static bool is_unused(struct gpuwmd *d)
{
	return status_of(d, "leases") == 0 && status_of(d, "publishes") == 0 && status_of(d, "waiting") == 0 &&
	       status_of(d, "sessions") == 1 && status_of(d, "jobs_running") == 0;
}

/* Kills the loaders that stand by beyond the first, which LOADER_IDLE_MS would end, if no loader does anything else. One that
 * leaves after its job can't be told from these: call it when such a one has left. */
static void spare_loaders_end(struct gpuwmd *d)
{
	json_t *status = query(d->admin, "status", NULL);
	pid_t pids[CHILDREN_MAX];
	size_t count = loaders_of(d->pid, pids);

	if (is_unused(d) && json_is_true(json_object_get(status, "standby")) &&
	    json_array_size(json_object_get(status, "keeping")) == 0 &&
	    (size_t)json_integer_value(json_object_get(status, "loaders")) == count)
		for (size_t i = 1; i < count; i++)
			kill(pids[i], SIGKILL);
	json_decref(status);
}

/* It may have fewer than at the start, when a description was being written. */
static bool idle(struct gpuwmd *d)
{
	return is_unused(d) && checkers_end(d) && status_of(d, "standby") == 1 &&
	       fds_of(d->pid) <= d->fds + fds_held(d) &&
	       (!d->keeper || fds_of(d->keeper) == d->keeper_fds + fds_held(d));
}

static void idle_assert(struct gpuwmd *d)
{
	char *text;

	if (EVENTUALLY(LEAVE_MS, idle(d)))
		return;
	spare_loaders_end(d);
	if (EVENTUALLY(10000, idle(d)))
		return;
	OK(gpuwm_query(d->admin, "status", NULL, &text));
	cr_assert(false, "not idle: %zu fds, %zu at the start, %zu of versions; %s", fds_of(d->pid), d->fds,
		  fds_held(d), text);
}

static void leave_assert(struct gpuwmd *d)
{
	pid_t pid = d->keeper > 0 ? d->keeper : d->pid;
	int status;

	d->admin = gpuwm_close(d->admin);
	cr_assert(kill(pid, SIGTERM) == 0);
	cr_assert(EVENTUALLY(10000, waitpid(pid, &status, WNOHANG) == pid), "gpuwmd does not leave");
	if (d->service.pid > 0)
		service_stop(d);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "gpuwmd left with status %#x", status);
	/* Sockets that the keeper keeps outlive gpuwmd. */
	cr_assert(d->keeper > 0 || (access(d->socket, F_OK) < 0 && access(d->admin_socket, F_OK) < 0),
		  "a socket is left");
	d->pid = d->keeper = 0;
	d->stopped = true;
}

void gpuwmd_stop(struct gpuwmd *d)
{
	idle_assert(d);
	leave_assert(d);
}

void gpuwmd_stop_empty(struct gpuwmd *d)
{
	idle_assert(d);
	cr_assert(EVENTUALLY(SOON_MS, fds_held(d) == 0), "%zu descriptors of versions are left", fds_held(d));
	cr_assert(EVENTUALLY(SOON_MS, memory_of(d) == 0), "%ju bytes are left", memory_of(d));
	cr_assert_eq(status_of(d, "bytes"), 0);
	leave_assert(d);
}
