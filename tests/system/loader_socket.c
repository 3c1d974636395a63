/* Loaders of a service of their own, as systemd starts them, beside those that gpuwmd starts:
 * who may have one, what it may open, and who notices whose death. */
#include "harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(loader_socket);

#define GONE_MS SOON_MS

static struct gpuwmd *start_by_service(void)
{
	setenv("GPUWM_TEST_LOADER", "socket", 1);
	return gpuwmd_start(NULL);
}

static struct gpuwmd *start_by_gpuwmd(void)
{
	setenv("GPUWM_TEST_LOADER", "spawn", 1);
	return gpuwmd_start(NULL);
}

/* Without waiting for a loader, which may never come. */
static void start_without_loader(struct gpuwmd *d)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);

	d->pid = gpuwmd_spawn(d, (const char *const[]){"--loader-socket", d->loader_socket, NULL});
	options.socket = d->socket;
	options.wait_ms = 10000;
	options.flags = GPUWM_CONNECT_ADMIN;
	OK(gpuwm_connect(&options, &d->admin));
	strcpy(d->device, "host");
}

/* For tests that leave gpuwmd with something amiss on purpose. */
static void end(struct gpuwmd *d)
{
	d->admin = gpuwm_close(d->admin);
	cr_assert(kill(d->pid, SIGKILL) == 0 && waitpid(d->pid, NULL, 0) == d->pid);
	d->pid = 0;
	d->stopped = true;
}

static bool all_gone(const pid_t *pids, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (kill(pids[i], 0) == 0)
			return false;
	}
	return true;
}

/* What `jobs` says of the one. */
static bool phase_says(struct gpuwmd *d, uint64_t job, const char *words)
{
	char filter[24];
	const char *phase;
	json_t *answer;
	bool says;

	snprintf(filter, sizeof filter, "%ju", (uintmax_t)job);
	answer = query(d->admin, "jobs", filter);
	phase = json_string_value(json_object_get(json_array_get(json_object_get(answer, "jobs"), 0), "phase"));
	says = phase && strstr(phase, words);
	json_decref(answer);
	return says;
}

/* ---- the main job ----------------------------------------------------- */

GPUWMD_TEST_BY(loader_socket, gpuwmd_loads_and_publishes_without_children, start_by_service(),
	       gpuwmd_stop_empty)
{
	struct gpuwm_client *client = client_new();
	pid_t loaders[CHILDREN_MAX];

	load_small(d, 1);
	OK(publish_version(client, d->device, "m@v2", SMALL(2)));
	worker_reads(d, "m@v1", 1);
	worker_reads(d, "m@v2", 2);
	cr_assert(EVENTUALLY(GONE_MS, status_of(d, "loaders") == 1 && loaders_of(d->pid, loaders) == 1));
	cr_assert_eq(children_of(d->pid, loaders, CHILDREN_MAX), 0, "gpuwmd has started a loader itself");
	gpuwm_close(client);
	DROP(d, "m@v1", "m@v2");
}

/* ---- who, and what ---------------------------------------------------- */

GPUWMD_TEST_BY(loader_socket, a_loader_refuses_every_user_but_its_own, gpuwmd_new(), end)
{
	char says[96];

	/* We may be root: that is nobody special. */
	service_start_for(d, getuid() + 1);
	start_without_loader(d);
	snprintf(says, sizeof says, "gpuwm-loader: a connection of user %u (pid %d) is refused: it is not %u's",
		 (unsigned)getuid(), (int)d->pid, (unsigned)getuid() + 1);
	cr_assert(EVENTUALLY(GONE_MS, log_says(d, says)), "it does not say: %s", says);
	FAILS(ENODEV, load_try(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1"));
	cr_assert(strstr(gpuwm_error()->message, "gpuwm-loader ended before it said hello"), "%s",
		  gpuwm_error()->message);
	cr_assert(strstr(gpuwm_error()->detail, "journalctl -u 'gpuwm-loader@*'"), "%s", gpuwm_error()->detail);
}

GPUWMD_TEST_BY(loader_socket, a_loader_opens_what_is_beneath_its_own_roots_only, gpuwmd_new(),
	       gpuwmd_stop_empty)
{
	char elsewhere[96];

	setenv("GPUWM_TEST_LOADER", "socket", 1);
	service_start(d);
	snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere.safetensors", d->dir);
	/* gpuwmd would allow it. */
	d->pid = gpuwmd_spawn(d, (const char *const[]){"--root", d->dir, NULL});
	gpuwmd_wait(d);
	load_small(d, 1);
	checkpoint_write(d, "../elsewhere", SMALL(2));
	FAILS(EACCES, load_try(d, elsewhere, "m@v2"));
	cr_assert(strstr(gpuwm_error()->message, "none of the configured roots"), "%s", gpuwm_error()->message);
	/* It might have been changed since the loader began to stand by. */
	cr_assert(log_says(d, "job 2 goes to a fresh loader, once: "));
	DROP(d, "m@v1");
}

GPUWMD_TEST_BY(loader_socket, a_reload_ends_the_loader_that_stands_by, start_by_service(), gpuwmd_stop_empty)
{
	pid_t before[CHILDREN_MAX], after[CHILDREN_MAX];

	cr_assert_eq(loaders_of(d->pid, before), 1);
	OK(gpuwm_reload(d->admin));
	cr_assert(EVENTUALLY(GONE_MS, loaders_of(d->pid, after) == 1 && after[0] != before[0]));
}

/* Runs gpuwm-loader with these flags (end with NULL), with gpuwmd's end of its descriptor 3 open, and with
 * room for so many descriptors: its exit code, and what it says in `output`. */
static int loader_run(rlim_t files, const char *const *flags)
{
	const char *argv[8] = {"gpuwm-loader"};
	char program[512];
	size_t used = 0;
	ssize_t got;
	int pair[2], out[2], status;
	pid_t pid;

	for (int i = 0; flags[i]; i++)
		argv[i + 1] = flags[i];
	snprintf(program, sizeof program, "%s/bin/gpuwm-loader", build_path());
	cr_assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0 &&
		  pipe2(out, O_CLOEXEC) == 0);
	pid = fork();
	if (pid == 0) {
		int sock = fcntl(pair[1], F_DUPFD_CLOEXEC, 10);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], 1);
		dup2(out[1], 2);
		dup2(sock, 3);
		close_range(4, ~0u, CLOSE_RANGE_CLOEXEC);
		setrlimit(RLIMIT_NOFILE, &(struct rlimit){files, files});
		execv(program, (char **)argv);
		_exit(126);
	}
	close(pair[1]);
	close(out[1]);
	while ((got = read(out[0], output + used, sizeof output - 1 - used)) > 0)
		used += (size_t)got;
	output[used] = 0;
	cr_assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "status %#x", status);
	close(pair[0]);
	close(out[0]);
	return WEXITSTATUS(status);
}

Test(loader_socket, a_loader_that_has_no_room_for_descriptors_says_so)
{
	static const char *const flags[] = {"--fd", "3", NULL};

	SKIP_UNLESS(!SANITIZED && backend() == BACKEND_HOST,
		    "a sanitizer or a driver has descriptors of its own");
	/* The watcher has the last one. */
	cr_assert_eq(loader_run(5, flags), 1);
	SAYS("could not open a pidfd of itself: Too many open files");
}

/* A log that is a file may have reached RLIMIT_FSIZE: what it doesn't take is lost, not the load. */
Test(loader_socket, a_full_log_ends_no_loader)
{
	char program[512];
	int status;
	pid_t pid;

	snprintf(program, sizeof program, "%s/bin/gpuwm-loader", build_path());
	pid = fork();
	if (pid == 0) {
		dup2(memfd_create("log", MFD_CLOEXEC), 2);
		close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
		setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0});
		execl(program, "gpuwm-loader", "--activated", "--user", "0", NULL); /* complains */
		_exit(126);
	}
	cr_assert(waitpid(pid, &status, 0) == pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1, "status %#x", status);
}

Test(loader_socket, a_loader_takes_a_connection_in_one_way)
{
	static const char *const wrong[][5] = {{"--activated"}, /* by anybody? */
					       {"--activated", "--config", "/etc/gpuwmd.conf"},
					       {"--user", "0"},
					       {"--activated", "--user", "0", "--fd", "3"},
					       {"--fd", "3", "--user", "0"},
					       {"--fd", "3", "--config", "/etc/gpuwmd.conf"}};

	for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		const char *flags[6] = {NULL};

		memcpy(flags, wrong[i], sizeof wrong[i]);
		cr_assert_eq(loader_run(64, flags), 2, "%u: %s", i, output);
		cr_assert(strstr(output, "these options are no way to call gpuwm-loader"), "%u: %s", i, output);
	}
	cr_assert_eq(loader_run(64, (const char *const[]){"--fd", "1", NULL}), 2);
	SAYS("--fd: 1 is no socket of the kind SOCK_SEQPACKET");
	cr_assert_eq(loader_run(64, (const char *const[]){"--activated", "--user", "0", NULL}), 1);
	SAYS("needs ListenSequentialPacket= and Accept=yes");
}

/* ---- deaths ----------------------------------------------------------- */

/* gpuwmd dies amid a load: its loader ends, and with it what was half filled. */
static void gpuwmd_dies(struct gpuwmd *d)
{
	const struct checkpoint c = {.seed = 1, .count = 64, .bytes = MB(4)};
	pid_t loaders[CHILDREN_MAX];
	size_t count;
	uint64_t job;

	OK(load_start(d, checkpoint_write(d, "v1", &c), "m@v1", NULL, &job));
	cr_assert(EVENTUALLY(GONE_MS, phase_says(d, job, "copying")));
	count = loaders_of(d->pid, loaders);
	cr_assert_gt(count, 0);
	end(d);
	cr_assert(EVENTUALLY(GONE_MS, all_gone(loaders, count)), "a loader is left");
	if (d->service.pid > 0)
		service_stop(d);
}

Test(loader_socket, loaders_of_a_service_end_with_gpuwmd)
{
	gpuwmd_dies(start_by_service());
}

Test(loader_socket, loaders_of_gpuwmd_end_with_it)
{
	gpuwmd_dies(start_by_gpuwmd());
}

/* Its main thread is held where it is, as a call into the driver may hold it. */
GPUWMD_TEST_BY(loader_socket, a_loader_of_a_service_that_hangs_ends_with_gpuwmd, start_by_service(),
	       service_stop)
{
	pid_t loaders[CHILDREN_MAX];
	int status = 0;

	cr_assert_eq(loaders_of(d->pid, loaders), 1);
	SKIP_UNLESS(ptrace(PTRACE_SEIZE, loaders[0], NULL, NULL) == 0, "this user may not trace a process");
	cr_assert_eq(ptrace(PTRACE_INTERRUPT, loaders[0], NULL, NULL), 0);
	cr_assert_eq(waitpid(loaders[0], &status, __WALL), loaders[0]);
	cr_assert(WIFSTOPPED(status), "%#x", status);
	end(d);
	cr_assert(EVENTUALLY(GONE_MS, waitpid(loaders[0], &status, __WALL | WNOHANG) == loaders[0] &&
					      !WIFSTOPPED(status)),
		  "it hangs for ever");
	cr_assert(log_says(d, "gpuwm-loader: gpuwmd hung up amid a call: ended"));
}

#define STOPS_MAX 10

/* A load of this name whose loader is stopped amid it: the job, and the loader. */
static uint64_t stopped_amid(struct gpuwmd *d, const struct checkpoint *c, const char *tag, pid_t *ret_loader)
{
	pid_t loaders[CHILDREN_MAX];
	char name[64];
	uint64_t job;

	snprintf(name, sizeof name, "m@%s", tag);
	for (int stops = 0; stops < STOPS_MAX; stops++) {
		fds_settled(d);
		cr_assert(EVENTUALLY(GONE_MS, loaders_of(d->pid, loaders) == 1));
		OK(load_start(d, checkpoint_write(d, tag, c), name, NULL, &job));
		/* A GPU may have had it before anybody asks. */
		cr_assert(EVENTUALLY(GONE_MS,
				     phase_says(d, job, "copying") || status_of(d, "jobs_running") == 0));
		*ret_loader = loaders[0];
		kill(loaders[0], SIGSTOP);
		OK(gpuwm_ping(d->admin, NULL)); /* what it has said before is heard */
		if (status_of(d, "jobs_running") == 1)
			return job;
		/* On a busy machine it was done before it was stopped. */
		kill(loaders[0], SIGCONT);
		OK(gpuwm_job_wait(d->admin, job, 30000));
		version_drop(d, "m", tag);
	}
	cr_assert_fail("each load was done before it was stopped");
	return 0;
}

/* Every loader dies amid a load: that load fails, and nothing else does. */
static void loaders_die(struct gpuwmd *d, const char *remedy)
{
	const struct checkpoint c = {.seed = 2, .count = 64, .bytes = MB(4)};
	struct process worker;
	uint64_t job;
	pid_t loader;

	load_small(d, 1);
	worker = worker_start(d, "m", 1);
	job = stopped_amid(d, &c, "v2", &loader);
	loaders_kill(d, SIGKILL);
	FAILS(EIO, gpuwm_job_wait(d->admin, job, 30000));
	cr_assert(strstr(gpuwm_error()->message, "gpuwm-loader died"), "%s", gpuwm_error()->message);
	cr_assert(strstr(gpuwm_error()->detail, remedy), "%s", gpuwm_error()->detail);
	worker_reads(d, "m", 1);
	process_tell(&worker, 'd');
	process_finish(&worker);
	load_version(d, checkpoint_write(d, "v3", SMALL(3)), "m@v3");
	DROP(d, "m@v1", "m@v3");
	gpuwmd_stop_empty(d);
}

/* A load comes to a loader that can't begin it any more: another one does it. */
static void standby_dies(struct gpuwmd *d)
{
	pid_t pids[CHILDREN_MAX];
	size_t count;
	uint64_t job;

	fds_settled(d);
	loaders_kill(d, SIGSTOP);
	count = loaders_of(d->pid, pids);
	OK(load_start(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1", NULL, &job));
	cr_assert(EVENTUALLY(GONE_MS, status_of(d, "jobs_running") == 1));
	while (count-- > 0) /* and none that was started since: it may have the load already */
		cr_assert_eq(kill(pids[count], SIGKILL), 0);
	OK(gpuwm_job_wait(d->admin, job, 30000));
	worker_reads(d, "m", 1);
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

Test(loader_socket, a_dead_standby_of_a_service_loses_no_load)
{
	standby_dies(start_by_service());
}

Test(loader_socket, a_dead_standby_of_gpuwmd_loses_no_load)
{
	standby_dies(gpuwmd_start(NULL));
}

Test(loader_socket, all_loaders_of_a_service_may_die)
{
	loaders_die(start_by_service(), "journalctl -u 'gpuwm-loader@*'");
}

Test(loader_socket, all_loaders_of_gpuwmd_may_die)
{
	loaders_die(start_by_gpuwmd(), "gpuwmd's log");
}

static uint64_t charged(struct gpuwmd *d)
{
	json_t *answer = query(d->admin, "status", NULL), *device;
	uint64_t bytes = 0;
	size_t i;

	json_array_foreach(json_object_get(answer, "devices"), i, device)
		bytes += (uint64_t)json_integer_value(json_object_get(device, "used"));
	json_decref(answer);
	return bytes;
}

/* gpuwmd can't kill it: it loses its connection, and what it holds stays charged until it is gone. */
GPUWMD_TEST_BY(loader_socket, a_loader_that_is_stopped_amid_its_job, start_by_service(), gpuwmd_stop_empty)
{
	const struct checkpoint c = {.seed = 1, .count = 64, .bytes = MB(4)};
	pid_t loader;
	uint64_t job = stopped_amid(d, &c, "v1", &loader);

	OK(gpuwm_job_cancel(d->admin, job));
	FAILS(ECANCELED, gpuwm_job_wait(d->admin, job, 30000));
	cr_assert(EVENTUALLY(GONE_MS, log_says(d, "can't be killed; it is forgotten")));
	cr_assert_geq(charged(d), checkpoint_bytes(&c));
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	cr_assert(kill(loader, SIGCONT) == 0);
	cr_assert(EVENTUALLY(GONE_MS, all_gone(&loader, 1)), "it lives on without gpuwmd");
	DROP(d, "m@v2");
	cr_assert(EVENTUALLY(GONE_MS, charged(d) == 0));
}

GPUWMD_TEST_BY(loader_socket, while_the_service_is_down_attaching_goes_on_and_loads_say_why_they_wait,
	       start_by_service(), gpuwmd_stop_empty)
{
	pid_t loaders[CHILDREN_MAX];
	uint64_t job;

	load_small(d, 1);
	cr_assert(EVENTUALLY(GONE_MS, status_of(d, "loaders") == 1 && loaders_of(d->pid, loaders) == 1));
	service_stop(d);
	cr_assert(kill(loaders[0], SIGKILL) == 0);
	cr_assert(EVENTUALLY(GONE_MS, status_of(d, "loaders") == 0));
	OK(load_start(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2", NULL, &job));
	cr_assert(EVENTUALLY(GONE_MS, phase_says(d, job, "waiting for a loader: no loader answers at ")));
	cr_assert(phase_says(d, job, d->loader_socket) && phase_says(d, job, "Connection refused"));
	worker_reads(d, "m", 1);
	FAILS(EIO, gpuwm_job_wait(d->admin, job, 30000));
	cr_assert(strstr(gpuwm_error()->message, "no loader could be started, 3 times in a row"), "%s",
		  gpuwm_error()->message);
	cr_assert(strstr(gpuwm_error()->detail, "gpuwm-loader.socket"), "%s", gpuwm_error()->detail);
	worker_reads(d, "m", 1);
	service_start(d);
	cr_assert(EVENTUALLY(GONE_MS, status_of(d, "standby") == 1));
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	worker_reads(d, "m@v2", 2);
	DROP(d, "m@v1", "m@v2");
}
