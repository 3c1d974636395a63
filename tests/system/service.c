/* gpuwmd as a program: starting, stopping, being alone, being gone. */
#include "raw.h"

#include "tests/support/any/own_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(service);

static int exit_code_of(pid_t pid)
{
	int status = 0;

	cr_assert(EVENTUALLY(10000, waitpid(pid, &status, WNOHANG) == pid), "it does not leave");
	cr_assert(WIFEXITED(status), "%#x", status);
	return WEXITSTATUS(status);
}

GPUWMD_TEST(service, a_second_daemon_on_the_same_socket_is_refused_and_the_first_undisturbed)
{
	struct process worker;

	load_small(d, 1);
	worker = worker_start(d, "m", 1);
	cr_assert_neq(exit_code_of(gpuwmd_spawn(d, NULL)), 0);
	cr_assert(log_says(d, d->socket), "the refusal does not name the socket");
	process_tell(&worker, 'd');
	process_finish(&worker);
	worker_reads(d, "m", 1);
	DROP(d, "m@v1");
}

GPUWMD_TEST(service, a_stale_socket_is_replaced)
{
	char first[33], *second;

	strcpy(first, gpuwm_instance(d->admin));
	cr_assert(kill(d->pid, SIGKILL) == 0 && waitpid(d->pid, NULL, 0) == d->pid);
	gpuwm_close(d->admin);
	cr_assert(access(d->socket, F_OK) == 0);
	d->pid = gpuwmd_spawn(d, NULL);
	gpuwmd_wait(d);
	second = strdup(gpuwm_instance(d->admin));
	cr_assert_str_neq(first, second);
	free(second);
}

Test(service, a_file_in_the_sockets_place_is_not_removed)
{
	struct gpuwmd d;
	FILE *file;

	folder_make(&d);
	file = fopen(d.socket, "we");
	cr_assert(file && fputs("precious", file) >= 0 && fclose(file) == 0);
	cr_assert_neq(exit_code_of(gpuwmd_spawn(&d, NULL)), 0);
	cr_assert(access(d.socket, F_OK) == 0);
}

/* Whether anybody connects to it just now or not. */
Test(service, the_socket_of_another_program_is_not_removed)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct gpuwmd d;

	folder_make(&d);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", d.socket);
	cr_assert_eq(bind(sock, (struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_neq(exit_code_of(gpuwmd_spawn(&d, NULL)), 0);
	cr_assert(log_says(&d, "is the socket of another program"));
	cr_assert(access(d.socket, F_OK) == 0);
	close(sock);
}

Test(service, a_daemon_that_is_not_there_is_said_at_once)
{
	struct gpuwmd d;
	struct gpuwm_client *client;
	int64_t begin;

	folder_make(&d);
	begin = clock_ms();
	cr_assert_lt(gpuwm_connect(NULL, &client), 0);
	cr_assert_lt(clock_ms() - begin, SOON_MS);
	cr_assert(strstr(gpuwm_error()->message, d.socket), "%s", gpuwm_error()->message);
	begin = clock_ms();
	CTL_IS(3, "ping");
	cr_assert_lt(clock_ms() - begin, SOON_MS);
}

Test(service, connecting_may_wait_for_the_daemon)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_client *client;
	struct gpuwmd d;
	pid_t pid;

	folder_make(&d);
	pid = gpuwmd_spawn(&d, NULL);
	options.wait_ms = 20000;
	OK(gpuwm_connect(&options, &client));
	OK(gpuwm_ping(client, NULL));
	gpuwm_close(client);
	cr_assert(kill(pid, SIGTERM) == 0);
	cr_assert_eq(exit_code_of(pid), 0);
}

Test(service, it_leaves_at_once_with_clients_connected)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct process workers[4];
	int64_t begin;
	int waiting;

	load_small(d, 1);
	for (int i = 0; i < 4; i++)
		workers[i] = worker_start(d, "m", 1);
	waiting = raw_client(d->socket);
	begin = clock_ms();
	cr_assert(kill(d->pid, SIGTERM) == 0);
	cr_assert_eq(exit_code_of(d->pid), 0);
	cr_assert_lt(clock_ms() - begin, STOP_DRAIN_MS + SOON_MS);
	for (int i = 0; i < 4; i++) {
		process_tell(&workers[i], 'e');
		process_finish(&workers[i]);
	}
	close(waiting);
	gpuwm_close(d->admin);
	d->pid = 0;
	d->stopped = true;
}

Test(service, it_leaves_at_once_with_a_load_running_and_takes_its_loaders_along)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	const struct checkpoint c = {.seed = 1, .count = 64, .bytes = MB(4)};
	pid_t loaders[CHILDREN_MAX];
	size_t count;
	uint64_t job;

	OK(load_start(d, checkpoint_write(d, "v1", &c), "m@v1", NULL, &job));
	count = loaders_of(d->pid, loaders);
	cr_assert_gt(count, 0);
	cr_assert(kill(d->pid, SIGTERM) == 0);
	cr_assert_eq(exit_code_of(d->pid), 0);
	for (size_t i = 0; i < count; i++)
		cr_assert(EVENTUALLY(SOON_MS, kill(loaders[i], 0) < 0 && errno == ESRCH), "a loader is left");
	gpuwm_close(d->admin);
	d->pid = 0;
	d->stopped = true;
}

Test(service, a_killed_daemon_takes_its_loaders_along)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	pid_t loaders[CHILDREN_MAX];
	size_t count = loaders_of(d->pid, loaders);

	cr_assert_gt(count, 0);
	cr_assert(kill(d->pid, SIGKILL) == 0 && waitpid(d->pid, NULL, 0) == d->pid);
	for (size_t i = 0; i < count; i++)
		cr_assert(EVENTUALLY(SOON_MS, kill(loaders[i], 0) < 0 && errno == ESRCH), "a loader is left");
	gpuwm_close(d->admin);
	d->pid = 0;
	d->stopped = true;
}

static int listen_at(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	cr_assert(bind(sock, (struct sockaddr *)&address, sizeof address) == 0 && listen(sock, 16) == 0);
	return sock;
}

/* As systemd does: listening sockets from descriptor 3 on, in any order. */
static pid_t spawn_activated(const struct gpuwmd *d, int first, int second)
{
	char program[512], pid_text[16];
	int log = open(d->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	pid_t pid;

	snprintf(program, sizeof program, "%s/bin/gpuwmd", build_path());
	pid = fork();
	if (pid != 0) {
		close(log);
		return pid;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	first = fcntl(first, F_DUPFD_CLOEXEC, 10);
	second = fcntl(second, F_DUPFD_CLOEXEC, 10);
	dup2(log, STDERR_FILENO);
	dup2(first, 3);
	dup2(second, 4);
	close_range(5, ~0u, CLOSE_RANGE_CLOEXEC);
	snprintf(pid_text, sizeof pid_text, "%d", (int)getpid());
	setenv("LISTEN_PID", pid_text, 1);
	setenv("LISTEN_FDS", "2", 1);
	setenv("LISTEN_FDNAMES", "admin:worker", 1);
	execl(program, "gpuwmd", "--socket", d->socket, "--admin-socket", d->admin_socket, "--root", d->root,
	      NULL);
	_exit(127);
}

/* What is opened first would be in their place, and what is logged and a loader's stderr go there. */
GPUWMD_TEST_BY(service, it_works_without_standard_streams, gpuwmd_new(), gpuwmd_stop_empty)
{
	const char *const words[] = {"/bin/sh", "-c", "exec \"$@\" <&- >&- 2>&-", "sh", NULL};

	d->pid = gpuwmd_spawn_by(d, words, NULL);
	gpuwmd_wait(d);
	load_version(d, checkpoint_write(d, "m", SMALL(1)), "m@v1");
	DROP(d, "m@v1");
}

GPUWMD_TEST_BY(service, sockets_of_systemd_are_taken_and_left, calloc(1, sizeof *d), free)
{
	int workers, admins;

	folder_make(d);
	workers = listen_at(d->socket);
	admins = listen_at(d->admin_socket);
	d->pid = spawn_activated(d, admins, workers);
	gpuwmd_wait(d);
	cr_assert(strstr(gpuwm_instance(d->admin), ""));
	gpuwm_close(client_new());
	gpuwm_close(d->admin);
	cr_assert(kill(d->pid, SIGTERM) == 0);
	cr_assert_eq(exit_code_of(d->pid), 0);
	cr_assert(access(d->socket, F_OK) == 0, "systemd's socket was removed");
	close(workers);
	close(admins);
}

GPUWMD_TEST_BY(service, a_socket_that_was_passed_is_not_moved_in_silence, calloc(1, sizeof *d), free)
{
	char here[sizeof d->socket];
	int workers, admins;

	folder_make(d);
	strcpy(here, d->socket);
	workers = listen_at(here);
	admins = listen_at(d->admin_socket);
	strcat(d->socket, ".new");
	d->pid = spawn_activated(d, admins, workers);
	cr_assert(EVENTUALLY(SOON_MS, log_says(d, d->socket)) && log_says(d, here));
	strcpy(d->socket, here);
	gpuwmd_wait(d);
	gpuwm_close(d->admin);
	cr_assert(kill(d->pid, SIGTERM) == 0);
	cr_assert_eq(exit_code_of(d->pid), 0);
	close(workers);
	close(admins);
}

GPUWMD_TEST(service, drain_lets_everything_go)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_publish *publish;
	struct gpuwm_mapping *mapping;
	struct process worker;
	uint64_t job;

	load_small(d, 2);
	worker = worker_start(d, "m@v2", 2);
	OK(gpuwm_drain(d->admin));
	cr_assert_eq(status_of(d, "draining"), 1);
	FAILS(ESHUTDOWN, gpuwm_attach(client, "m@v2", NULL, &mapping));
	FAILS(ESHUTDOWN, load_start(d, checkpoint_write(d, "v3", SMALL(3)), "m@v3", NULL, &job));
	FAILS(ESHUTDOWN, publish_begin(client, d->device, "m@v3", SMALL(3), &publish));
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	cr_assert(version_is(d, "m", "v2", "retiring"));
	process_tell(&worker, 'd');
	process_finish(&worker);
	gpuwm_close(client);
}

Test(service, a_loader_that_is_gone_fails_loads_and_nothing_else)
{
	struct gpuwmd *d;
	char loader[128], program[512];
	pid_t standby[CHILDREN_MAX];
	int r;

	snprintf(loader, sizeof loader, "%s/gpuwm-loader", own_folder());
	snprintf(program, sizeof program, "%s/bin/gpuwm-loader", build_path());
	cr_assert(symlink(program, loader) == 0);
	d = gpuwmd_start("--loader", loader, NULL);
	load_small(d, 1);
	cr_assert(EVENTUALLY(20000, status_of(d, "standby") == 1));
	/* The one that loaded takes its context down first, which crowds on the same GPU delay. */
	cr_assert(EVENTUALLY(20000, loaders_of(d->pid, standby) == 1));
	cr_assert(unlink(loader) == 0);
	kill(standby[0], SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "standby") == 0));
	r = load_try(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	cr_assert_lt(r, 0);
	cr_assert(strstr(gpuwm_error()->message, "loader") || strstr(gpuwm_error()->detail, "loader"), "%s",
		  gpuwm_error()->message);
	worker_reads(d, "m", 1);
	cr_assert(kill(d->pid, SIGTERM) == 0);
	cr_assert_eq(exit_code_of(d->pid), 0);
	gpuwm_close(d->admin);
	d->pid = 0;
	d->stopped = true;
}

GPUWMD_TEST_BY(service, the_daemon_has_no_driver_and_no_gpu_open, gpuwmd_start(NULL), gpuwmd_stop)
{
	char path[64], line[512], target[256];
	FILE *file;

	load_small(d, 1);
	snprintf(path, sizeof path, "/proc/%d/maps", (int)d->pid);
	file = fopen(path, "re");
	cr_assert(file);
	while (fgets(line, sizeof line, file)) {
		cr_assert(!strstr(line, "libcuda"), "%s", line);
		cr_assert(!strstr(line, "/dev/nvidia"), "%s", line);
		cr_assert(!strstr(line, "/memfd:"), "it maps what others made: %s", line);
	}
	fclose(file);
	for (int fd = 0; fd < 64 && backend() != BACKEND_CUDA; fd++) {
		ssize_t length;

		snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)d->pid, fd);
		length = readlink(path, target, sizeof target - 1);
		target[length > 0 ? length : 0] = 0;
		cr_assert(!strstr(target, "/dev/nvidia"), "%s", target);
	}
}

Test(service, wrong_flags_are_usage_errors)
{
	static const char *const wrong[][3] = {{"--nonsense", NULL},
					       {"--set", "limits.sessions=none", NULL},
					       {"--set", "budget.host=much", NULL},
					       {"--config", "/nonexistent", NULL}};
	struct gpuwmd d;

	folder_make(&d);
	for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		cr_assert_neq(exit_code_of(gpuwmd_spawn(&d, wrong[i])), 0, "%s", wrong[i][0]);
	cr_assert(log_says(&d, "nonsense") && log_says(&d, "/nonexistent"));
}
