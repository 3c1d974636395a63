#include "client/lib/connection/dial.h"
#include "proto/socket_place.h"
#include "tests/support/any/child.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/support/lib/client.h"

static struct gpuwm_connect_options options_to(const char *path)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);

	options.socket = path;
	return options;
}

TestSuite(client, .init = client_setup, .fini = client_teardown);

Test(client, knows_the_daemon_and_its_devices)
{
	const struct gpuwm_device *devices;
	uint64_t ns = 0;

	cr_assert(eq(str, (char *)gpuwm_instance(client), FAKE_INSTANCE));
	cr_assert(eq(sz, gpuwm_devices(client, &devices), 1));
	cr_assert(eq(str, (char *)devices[0].id, "host"));
	cr_assert(devices[0].is_cuda == false);
	cr_assert(eq(u64, devices[0].budget, GIB(4)));
	cr_assert(eq(int, gpuwm_ping(client, &ns), 0));
	cr_assert(lt(u64, 0, ns));
}

Test(client, takes_the_path_from_the_environment)
{
	struct gpuwm_client *other;

	setenv("GPUWM_SOCKET", fake->path, 1);
	cr_assert(eq(int, gpuwm_connect(NULL, &other), 0));
	gpuwm_close(other);
	unsetenv("GPUWM_SOCKET");
}

Test(client, finds_the_users_socket_before_the_systems)
{
	char folder[128], path[160], *found;

	snprintf(folder, sizeof(folder), "%s/gpuwm", fake->folder);
	snprintf(path, sizeof(path), "%s/gpuwm.sock", folder);
	setenv("XDG_RUNTIME_DIR", fake->folder, 1);
	found = socket_path(NULL, false);
	cr_assert(eq(str, found, "/run/gpuwm/gpuwm.sock"));
	free(found);
	cr_assert(eq(int, mkdir(folder, 0700), 0));
	cr_assert(eq(int, symlink(fake->path, path), 0));
	found = socket_path(NULL, false);
	cr_assert(eq(str, found, path));
	free(found);
	unlink(path);
	rmdir(folder);
}

/* A folder below the fake's, which is $XDG_RUNTIME_DIR or $HOME. Sets path to where this user's gpuwmd listens there. */
static void users_place(const char *variable, const char *below, char path[192])
{
	char command[256];

	snprintf(path, 192, "%s/%s", fake->folder, below);
	snprintf(command, sizeof(command), "mkdir -p %s/gpuwm", path);
	cr_assert(eq(int, system(command), 0));
	path[strlen(fake->folder) + 1 + strcspn(below, "/")] = '\0';
	setenv(variable, path, 1);
	snprintf(path, 192, "%s/%s/gpuwm/gpuwm.sock", fake->folder, below);
}

static void stale_socket(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	strcpy(address.sun_path, path);
	cr_assert(eq(int, bind(sock, (struct sockaddr *)&address, sizeof(address)), 0));
	close(sock);
}

static void users_places_remove(void)
{
	char command[256];

	snprintf(command, sizeof(command), "rm -r %s/run %s/home", fake->folder, fake->folder);
	cr_assert(eq(int, system(command), 0));
}

Test(client, connects_to_the_first_place_where_somebody_listens)
{
	struct gpuwm_client *other;
	char runtime[192], home[192];

	users_place("XDG_RUNTIME_DIR", "run", runtime);
	users_place("HOME", "home/.local/state", home);
	stale_socket(runtime);
	cr_assert(eq(int, symlink(fake->path, home), 0));
	cr_assert(eq(int, gpuwm_connect(NULL, &other), 0));
	cr_expect(eq(str, (char *)gpuwm_socket_path(other), home));
	gpuwm_close(other);
	cr_assert(unlink(runtime) == 0 && symlink(fake->path, runtime) == 0);
	cr_assert(eq(int, gpuwm_connect(NULL, &other), 0));
	cr_expect(eq(str, (char *)gpuwm_socket_path(other), runtime));
	gpuwm_close(other);
	users_places_remove();
}

Test(client, leaves_out_the_folder_of_another_user)
{
	char runtime[192], home[192], *found;

	if (geteuid() != 0) {
		client_teardown(); /* Criterion calls no fini after a skip */
		cr_skip_test("only root can give a folder away");
	}
	users_place("XDG_RUNTIME_DIR", "run", runtime);
	users_place("HOME", "home/.local/state", home);
	cr_assert(eq(int, symlink(fake->path, runtime), 0));
	cr_assert(eq(int, chown(getenv("XDG_RUNTIME_DIR"), 65534, 65534), 0));
	found = socket_path(NULL, false);
	cr_expect(ne(str, found, runtime));
	free(found);
	found = socket_users_folder();
	cr_expect(strncmp(found, home, strlen(found)) == 0, "%s", found);
	free(found);
	users_places_remove();
}

Test(client, leaves_out_a_place_that_is_too_long_for_a_socket)
{
	char home[200] = "/";
	struct socket_places places;

	memset(home + 1, 'x', sizeof(home) - 2);
	setenv("HOME", home, 1);
	setenv("XDG_RUNTIME_DIR", fake->folder, 1);
	cr_assert(eq(int, socket_places_find(NULL, false, &places), 0));
	cr_assert(eq(sz, places.count, 2));
	cr_expect(places.items[0].is_users && !places.items[1].is_users);
	cr_expect(eq(str, places.items[1].path, "/run/gpuwm/gpuwm.sock"));
	socket_places_clear(&places);
}

Test(client, names_every_place_where_nobody_listens)
{
	const struct socket_place places[] = {{"/nonexistent/a.sock", true, NULL},
					      {"/nonexistent/b.sock", false, NULL}};
	const struct dial_target to = {.places = places, .count = 2, .name = "test"};
	struct connection *connection;
	struct error error;
	size_t at;

	cr_assert(eq(int, dial(&to, &at, &connection, NULL, &error), -ENOENT));
	cr_expect(eq(str, error.message,
		     "connecting to /nonexistent/a.sock, /nonexistent/b.sock: nobody listens there"));
	cr_expect(strstr(error.detail, "gpuwmctl start") != NULL);
}

Test(client, operators_of_the_users_gpuwmd_do_not_reach_another_one)
{
	char runtime[192], home[192];
	struct socket_place places[] = {{"/nonexistent/admin.sock", true, runtime}, {fake->path, false, NULL}};
	const struct dial_target to = {.places = places, .count = 2, .name = "test"};
	struct connection *connection;
	struct error error;
	size_t at;

	users_place("XDG_RUNTIME_DIR", "run", runtime);
	users_place("HOME", "home/.local/state", home);
	cr_assert(eq(int, symlink(fake->path, runtime), 0));
	cr_assert(eq(int, dial(&to, &at, &connection, NULL, &error), -ENOENT));
	cr_expect(strstr(error.message, "/nonexistent/admin.sock: nobody listens there") != NULL);
	users_places_remove();
}

/* Listens at this path as this user. Returns the socket. */
static int listen_as(uid_t uid, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	strcpy(address.sun_path, path);
	cr_assert(eq(int, bind(sock, (struct sockaddr *)&address, sizeof(address)), 0));
	cr_assert(eq(int, seteuid(uid), 0));
	cr_assert(eq(int, listen(sock, 4), 0)); /* the peer is who listens */
	cr_assert(eq(int, seteuid(0), 0));
	cr_assert(eq(int, prctl(PR_SET_DUMPABLE, 1), 0)); /* for the leak checker */
	return sock;
}

/* Who names a socket trusts it. */
static int dial_named(const char *path)
{
	struct socket_places places;
	struct connection *connection;
	struct error error;
	int r;

	cr_assert(eq(int, socket_places_find(path, false, &places), 0));
	r = dial_socket(&places.items[0], &connection, &error);
	socket_places_clear(&places);
	if (r == 0)
		connection_free(connection);
	return r;
}

Test(client, takes_a_users_socket_from_this_user_and_root_only)
{
	struct gpuwm_client *other;
	char runtime[192], home[192];
	int sock;

	if (geteuid() != 0) {
		client_teardown(); /* Criterion calls no fini after a skip */
		cr_skip_test("only root can be another user");
	}
	users_place("XDG_RUNTIME_DIR", "run", runtime);
	users_place("HOME", "home/.local/state", home);
	sock = listen_as(65534, runtime);
	cr_assert(eq(int, gpuwm_connect(NULL, &other), -EPERM));
	cr_expect(strstr(gpuwm_error()->message, "uid 65534 listens there, and only uid 0 or root may") != NULL,
		  "%s", gpuwm_error()->message);
	cr_expect(eq(int, dial_named(runtime), 0));
	close(sock);
	users_places_remove();
}

Test(client, finds_the_operators_socket_beside_the_workers)
{
	char path[128];
	char *found = socket_path("/a/b/gpuwm.sock", true);

	cr_assert(eq(str, found, "/a/b/admin.sock"));
	free(found);
	cr_assert(eq(int, chdir(fake->folder), 0));
	snprintf(path, sizeof(path), "%s/admin.sock", fake->folder);
	found = socket_path("gpuwm.sock", true);
	cr_assert(eq(str, found, path));
	free(found);
}

Test(client, operators_may_have_their_socket_elsewhere)
{
	char *found;

	setenv("GPUWM_ADMIN_SOCKET", "/operate/admin.sock", 1);
	found = socket_path(NULL, true);
	cr_expect(eq(str, found, "/operate/admin.sock"));
	free(found);
	found = socket_path(NULL, false);
	cr_expect(ne(str, found, "/operate/admin.sock"));
	free(found);
	found = socket_path("/a/gpuwm.sock", true); /* who names a socket means that one */
	cr_expect(eq(str, found, "/a/admin.sock"));
	free(found);
	setenv("GPUWM_ADMIN_SOCKET", "", 1);
	setenv("GPUWM_SOCKET", "/b/gpuwm.sock", 1);
	found = socket_path(NULL, true);
	cr_expect(eq(str, found, "/b/admin.sock"));
	free(found);
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

Test(client, says_at_once_that_nobody_listens)
{
	struct gpuwm_connect_options options = options_to("/nonexistent/gpuwm.sock");
	struct gpuwm_client *none = NULL;
	int64_t before = now_ms();

	cr_assert(eq(int, gpuwm_connect(&options, &none), -ENOENT));
	cr_assert(lt(long, now_ms() - before, CALL_TIMEOUT_MS / 2));
	cr_assert(eq(str, (char *)gpuwm_error()->name, "ENOENT"));
	cr_assert(strstr(gpuwm_error()->message, "/nonexistent/gpuwm.sock") != NULL);
	cr_assert(strstr(gpuwm_error()->detail, "gpuwmctl start starts it for this user") != NULL);
	cr_assert(none == NULL);
}

Test(client, says_that_the_other_end_of_a_socket_is_gone)
{
	char path[128] = "";
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct gpuwm_connect_options options = options_to(path);
	struct gpuwm_client *none;
	int sock = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	snprintf(path, sizeof(path), "%s/stale.sock", fake->folder);
	strcpy(address.sun_path, path);
	cr_assert(eq(int, bind(sock, (struct sockaddr *)&address, sizeof(address)), 0));
	close(sock);
	cr_expect(eq(int, gpuwm_connect(&options, &none), -ECONNREFUSED));
	unlink(path);
	cr_assert(strstr(gpuwm_error()->detail, "is gpuwmd running?") != NULL);
}

Test(client, refuses_a_path_that_no_socket_can_have)
{
	char path[200] = "";
	struct gpuwm_connect_options options = options_to(path);
	struct gpuwm_client *none;

	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	cr_assert(eq(int, gpuwm_connect(&options, &none), -EINVAL));
	cr_assert(strstr(gpuwm_error()->message, "has 199 bytes, and at most 107 are possible") != NULL);
}

static void *start_late(void *path)
{
	struct fake *late = fake_start();

	rename(late->path, path);
	return late;
}

Test(client, waits_for_a_daemon_that_starts_late)
{
	char path[128] = "";
	struct gpuwm_connect_options options = options_to(path);
	struct gpuwm_client *other;
	pthread_t thread;
	void *late;

	snprintf(path, sizeof(path), "%s/late.sock", fake->folder);
	options.wait_ms = 10000;
	pthread_create(&thread, NULL, start_late, path);
	cr_assert(eq(int, gpuwm_connect(&options, &other), 0));
	pthread_join(thread, &late);
	gpuwm_close(other);
	unlink(path);
	fake_stop(late);
}

#define SHORT_MS 100

Test(client, connects_no_longer_than_the_caller_allows)
{
	struct gpuwm_connect_options options = options_to(fake->path);
	struct gpuwm_client *none;
	char own[32];

	strcpy(fake->silent, "hello");
	snprintf(own, sizeof(own), "gpuwmd (pid %d)", (int)getpid());
	for (int named = 0; named < 2; named++) {
		int64_t before = now_ms();

		options.wait_ms = named ? 0 : SHORT_MS;
		options.timeout_ms = named ? SHORT_MS : 0;
		cr_expect(eq(int, gpuwm_connect(&options, &none), -ETIMEDOUT));
		cr_expect(ge(long, now_ms() - before, SHORT_MS));
		cr_expect(lt(long, now_ms() - before, CALL_TIMEOUT_MS / 2));
		cr_expect(strstr(gpuwm_error()->message, own) != NULL, "%s", gpuwm_error()->message);
		cr_expect(strstr(gpuwm_error()->message, " did not answer at ") != NULL);
		cr_expect(strstr(gpuwm_error()->detail, "gpuwmctl doctor") != NULL);
	}
	fake->silent[0] = 0;
}

/* As after a restart: a process that has exited since called listen. */
Test(client, names_no_gpuwmd_that_is_gone)
{
	const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct gpuwm_connect_options options = options_to(address.sun_path);
	struct gpuwm_client *none;
	pid_t child;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/passed.sock", fake->folder);
	cr_assert(eq(int, bind(listener, (struct sockaddr *)&address, sizeof(address)), 0));
	child = fork();
	if (child == 0)
		_exit(listen(listener, 8) != 0);
	cr_assert(eq(int, waitpid(child, NULL, 0), child));
	options.wait_ms = SHORT_MS;
	cr_expect(eq(int, gpuwm_connect(&options, &none), -ETIMEDOUT));
	cr_expect(strstr(gpuwm_error()->message, "gpuwmd did not answer at ") != NULL, "%s",
		  gpuwm_error()->message);
	close(listener);
	unlink(address.sun_path);
}

/* Nobody accepts: each connection stays in the queue, which then takes no more. */
Test(client, says_that_the_queue_of_new_connections_is_full)
{
	const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct gpuwm_connect_options options = options_to(address.sun_path);
	struct gpuwm_client *none;
	int queued[8], count = 0;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/full.sock", fake->folder);
	cr_assert(eq(int, bind(listener, (struct sockaddr *)&address, sizeof(address)), 0));
	cr_assert(eq(int, listen(listener, 0), 0));
	do {
		cr_assert(lt(int, count, 8));
		queued[count] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	} while (connect(queued[count++], (struct sockaddr *)&address, sizeof(address)) == 0);
	cr_assert(eq(int, errno, EAGAIN));
	options.timeout_ms = SHORT_MS;
	cr_expect(eq(int, gpuwm_connect(&options, &none), -ETIMEDOUT));
	cr_expect(strstr(gpuwm_error()->message, "gpuwmd did not take the connection at ") != NULL, "%s",
		  gpuwm_error()->message);
	cr_expect(strstr(gpuwm_error()->message, ": its queue of new connections is full") != NULL);
	while (count > 0)
		close(queued[--count]);
	close(listener);
	unlink(address.sun_path);
}

Test(client, tests_leave_no_folder_of_one_that_died)
{
	char path[64], file[96];
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	waitpid(child, NULL, 0);
	snprintf(path, sizeof(path), "/tmp/gpuwm-fake-%d-XXXXXX", child);
	cr_assert(mkdtemp(path) != NULL);
	snprintf(file, sizeof(file), "%s/gpuwm.sock", path);
	close(open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	fake_stop(fake_start());
	cr_expect(eq(int, access(path, F_OK), -1));
	cr_expect(eq(int, access(fake->path, F_OK), 0));
}

Test(client, refuses_options_that_are_none)
{
	struct gpuwm_connect_options options = options_to(fake->path);
	struct gpuwm_client *none;

	options.size = 3;
	cr_assert(eq(int, gpuwm_connect(&options, &none), -EINVAL));
	cr_assert(strstr(gpuwm_error()->message, "their size is 3") != NULL);
	options = options_to(fake->path);
	options.flags = 64;
	cr_assert(eq(int, gpuwm_connect(&options, &none), -EINVAL));
	cr_assert(strstr(gpuwm_error()->message, "0x40") != NULL);
}

Test(client, passes_on_what_hello_is_refused_with)
{
	struct gpuwm_connect_options options = options_to(fake->path);
	struct gpuwm_client *none;

	error_set(&fake->refusal, -EPROTONOSUPPORT, NULL, "you speak 1 to 1, gpuwmd speaks 2 to 3");
	strcpy(fake->refuse, "hello");
	cr_assert(eq(int, gpuwm_connect(&options, &none), -EPROTONOSUPPORT));
	cr_assert(strstr(gpuwm_error()->message, "2 to 3; this is libgpuwm-client " GPUWM_VERSION) != NULL);
}

Test(client, of_one_connection_says_that_the_daemon_died)
{
	struct gpuwm_connect_options options = options_to(fake->path);
	struct gpuwm_client *once;

	options.flags = GPUWM_CONNECT_ONCE;
	cr_assert(eq(int, gpuwm_connect(&options, &once), 0));
	strcpy(fake->dies_at, "ping");
	fake->deaths = 1;
	cr_assert(eq(int, gpuwm_ping(once, NULL), -ECONNRESET));
	cr_assert(eq(int, gpuwm_ping(once, NULL), -ECONNRESET));
	cr_assert(eq(int, gpuwm_pin(once, "m", "p"), -ECONNRESET));
	cr_assert(eq(int, gpuwm_ping(NULL, NULL), -EINVAL));
	gpuwm_close(once);
}

Test(client, is_refused_in_a_child_which_connects_anew)
{
	struct gpuwm_connect_options options = options_to(fake->path);
	struct gpuwm_client *other;
	int status;
	pid_t child = fork();

	if (child == 0) {
		int r = gpuwm_ping(client, NULL);

		if (r != -ECHILD || !strstr(gpuwm_error()->detail, "connect again in the child"))
			_exit(1);
		if (gpuwm_connect(&options, &other) < 0 || gpuwm_ping(other, NULL) < 0)
			_exit(2);
		gpuwm_close(other);
		gpuwm_close(client);
		_exit(0);
	}
	waitpid(child, &status, 0);
	cr_assert(eq(int, status, 0));
	cr_assert(eq(int, gpuwm_ping(client, NULL), 0));
}

Test(client, tells_how_a_job_ended)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	const char *devices[] = {"host"};
	uint64_t job = 0;

	options.source = "/models/m";
	options.name = "m@v1";
	options.devices = devices;
	options.device_count = 1;
	cr_assert(eq(int, gpuwm_load(client, &options, &job), 0));
	cr_assert(eq(u64, job, 5));
	cr_assert(eq(int, gpuwm_job_wait(client, 1, -1), 0));
	cr_assert(eq(int, gpuwm_job_wait(client, 2, 0), -EBADMSG));
	cr_assert(eq(str, (char *)gpuwm_error()->message, "the file is damaged"));
	cr_assert(eq(str, (char *)gpuwm_error()->detail, "get it again"));
	cr_assert(eq(int, gpuwm_job_wait(client, 3, 0), -ETIMEDOUT));
	cr_assert(eq(int, gpuwm_job_wait(client, 4, 0), -EPROTO));
	cr_assert(eq(str, (char *)gpuwm_error()->message, "jobs: \"job\" is missing"));
	cr_assert(eq(int, gpuwm_job_cancel(client, 3), 0));
	options.source = NULL;
	cr_assert(eq(int, gpuwm_load(client, &options, &job), -EINVAL));
}

Test(client, tells_the_jobs_that_verify)
{
	uint64_t jobs[GPUWM_VERIFY_JOBS_MAX] = {0};
	size_t count = 7;

	cr_assert(eq(int, gpuwm_verify(client, "2", "host", jobs, &count), 0));
	cr_assert(eq(sz, count, 2));
	cr_assert(eq(u64, jobs[0], 100));
	cr_assert(eq(u64, jobs[1], 101));
	cr_assert(eq(int, gpuwm_verify(client, "64", NULL, jobs, &count), 0));
	cr_assert(eq(sz, count, 64));
	cr_assert(eq(int, gpuwm_verify(client, "65", NULL, jobs, &count), -EPROTO));
	cr_assert(eq(int, gpuwm_verify(client, "-1", NULL, jobs, &count), -EPROTO));
	jobs[0] = 7;
	cr_assert(eq(int, gpuwm_verify(client, "-2", NULL, jobs, &count), -EPROTO));
	cr_assert(eq(u64, jobs[0], 7), "untouched by failures");
	cr_assert(eq(str, (char *)gpuwm_error()->message, "verify: \"jobs\" is no unsigned integer"));
	cr_assert(eq(int, gpuwm_verify(client, NULL, NULL, jobs, &count), -EINVAL));
	cr_assert(eq(sz, count, 64), "untouched by failures");
	error_set(&fake->refusal, -EINVAL, "", "m@v1 is building");
	strcpy(fake->refuse, "verify");
	cr_assert(eq(int, gpuwm_verify(client, "1", NULL, jobs, &count), -EINVAL));
}

Test(client, operates)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);
	char old[33];

	options.model = "m";
	options.to = "v2";
	cr_assert(eq(int, gpuwm_swap(client, &options, old), 0));
	cr_assert(eq(str, old, FAKE_VERSION));
	cr_assert(eq(int, gpuwm_pin(client, "m@v1", "p"), 0));
	cr_assert(eq(int, gpuwm_unpin(client, "m@v1", "p"), 0));
	cr_assert(eq(int, gpuwm_retire(client, "m@v1", -1), 0));
	cr_assert(eq(int, gpuwm_remove(client, "m@v1"), 0));
	cr_assert(eq(int, gpuwm_remove(client, NULL), -EINVAL));
	cr_assert(eq(int, gpuwm_drain(client), 0));
	cr_assert(eq(int, gpuwm_reload(client), 0));
	cr_assert(eq(int, gpuwm_pin(client, NULL, "p"), -EINVAL));
	options.model = NULL;
	cr_assert(eq(int, gpuwm_swap(client, &options, NULL), -EINVAL));
}

Test(client, passes_on_every_refusal)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);

	error_set(&fake->refusal, -EBUSY, "the alias names v3", "expect does not hold");
	strcpy(fake->refuse, "hot_swap");
	options.model = "m";
	cr_assert(eq(int, gpuwm_swap(client, &options, NULL), -EBUSY));
	cr_assert(eq(str, (char *)gpuwm_error()->detail, "the alias names v3"));
}

Test(client, answers_queries_as_json)
{
	char *json = NULL;

	cr_assert(eq(int, gpuwm_query(client, "jobs", "1", &json), 0));
	cr_assert(eq(
		str, json,
		"{\"jobs\":[{\"job\":1,\"kind\":\"load\",\"state\":\"done\",\"phase\":\"\",\"model\":\"m\",\"tag\":\"v\","
		"\"devices\":[],\"uid\":0,\"done\":0,\"total\":0,\"notes\":[],\"created_ms\":0}]}"));
	free(json);
	cr_assert(eq(int, gpuwm_query(client, "list", "m", &json), 0));
	free(json);
	cr_assert(eq(int, gpuwm_query(client, "jobs", "x1", &json), -EINVAL));
	cr_assert(eq(int, gpuwm_query(client, "jobs", "-1", &json), -EINVAL));
	cr_assert(eq(int, gpuwm_query(client, "status", "x", &json), -EINVAL));
	cr_assert(eq(int, gpuwm_query(client, "hello", NULL, &json), -EINVAL));
	cr_assert(eq(int, gpuwm_query(client, NULL, NULL, &json), -EINVAL));
}

Test(client, takes_the_options_of_older_headers)
{
	struct gpuwm_swap_options swap = GPUWM_OPTIONS(struct gpuwm_swap_options);
	struct gpuwm_connect_options connect = {.size = offsetof(struct gpuwm_connect_options, flags)};
	struct gpuwm_client *other = NULL;

	connect.socket = fake->path;
	connect.flags = 1u << 31; /* beyond what the struct has */
	cr_assert(eq(int, gpuwm_connect(&connect, &other), 0), "%s", gpuwm_error()->message);
	gpuwm_close(other);
	swap.model = "m";
	swap.size = offsetof(struct gpuwm_swap_options, alias);
	cr_assert(eq(int, gpuwm_swap(client, &swap, NULL), 0), "%s", gpuwm_error()->message);
	swap.size = sizeof(swap.size);
	cr_assert(eq(int, gpuwm_swap(client, &swap, NULL), -EINVAL));
	cr_assert(strstr(gpuwm_error()->message, "the model of a swap") != NULL);
}

Test(client, takes_the_options_of_newer_headers_when_they_are_zero)
{
	struct {
		struct gpuwm_swap_options options;
		uint64_t added[2];
	} newer = {.options = {.size = sizeof(newer), .model = "m"}};

	cr_assert(eq(int, gpuwm_swap(client, &newer.options, NULL), 0), "%s", gpuwm_error()->message);
	newer.added[1] = 1;
	cr_assert(eq(int, gpuwm_swap(client, &newer.options, NULL), -EINVAL));
	cr_assert(strstr(gpuwm_error()->message, "compiled against a newer gpuwm") != NULL);
}

Test(client, refuses_sizes_that_no_options_have)
{
	const size_t sizes[] = {0, 7, sizeof(struct gpuwm_swap_options) - 1, OPTIONS_BYTES_MAX + 8,
				SIZE_MAX - 7};
	struct gpuwm_swap_options options = {.model = "m"};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		options.size = sizes[i];
		cr_expect(eq(int, gpuwm_swap(client, &options, NULL), -EINVAL), "%zu", sizes[i]);
	}
}

struct seen {
	int count;
	uint64_t last;
	char kind[32];
};

static void see(const struct gpuwm_event *event, void *user_data)
{
	struct seen *seen = user_data;

	seen->count++;
	seen->last = event->seq;
	snprintf(seen->kind, sizeof(seen->kind), "%s", event->kind);
	if (strcmp(event->kind, "swapped") == 0) {
		cr_assert(eq(str, (char *)event->alias, "current"));
		cr_assert(eq(str, (char *)event->tag, ""));
		cr_assert(eq(str, (char *)event->version, FAKE_VERSION));
		cr_assert(strstr(event->json, "\"kind\":\"swapped\"") != NULL);
	}
}

Test(client, tells_events_until_the_daemon_leaves)
{
	struct gpuwm_events *events;
	struct seen seen = {0};

	cr_assert(eq(int, gpuwm_events_open(client, UINT64_MAX, &events), 0));
	while (seen.count < 2)
		cr_assert(lt(int, 0, gpuwm_events_dispatch(events, -1, see, &seen)));
	cr_assert(eq(u64, seen.last, 5));
	cr_assert(eq(int, gpuwm_events_dispatch(events, 0, see, &seen), 0));
	cr_assert(eq(int, gpuwm_events_get_events(events), POLLIN));
	shutdown(gpuwm_events_get_fd(events), SHUT_RDWR);
	cr_assert(eq(int, gpuwm_events_dispatch(events, -1, see, &seen), -ECONNRESET));
	cr_assert(eq(str, seen.kind, "disconnected"));
	cr_assert(eq(int, gpuwm_events_dispatch(events, -1, see, &seen), -ECONNRESET));
	cr_assert(eq(int, seen.count, 3));
	gpuwm_events_close(events);
	gpuwm_events_close(NULL);
}

Test(client, refuses_events_in_a_child)
{
	struct gpuwm_events *events;
	struct seen seen = {0};

	cr_assert(eq(int, gpuwm_events_open(client, 3, &events), 0));
	cr_assert(eq(int, IN_CHILD(gpuwm_events_dispatch(events, -1, see, &seen) == -ECHILD ? 0 : 1), 0));
	gpuwm_events_close(events);
}

Test(client, keeps_the_last_error_of_each_thread)
{
	cr_assert(eq(int, gpuwm_pin(client, NULL, "p"), -EINVAL));
	cr_assert(eq(int, gpuwm_error()->code, -EINVAL));
	cr_assert(eq(str, (char *)gpuwm_error()->name, "EINVAL"));
	cr_assert(eq(str, (char *)gpuwm_error()->detail, ""));
	cr_assert(eq(str, (char *)gpuwm_library_version(), GPUWM_VERSION));
	cr_assert(eq(str, (char *)gpuwm_dtype_name(GPUWM_BF16), "BF16"));
}

Test(client, tells_the_blocks_of_dtypes)
{
	uint32_t elements = 0, bytes = 0;

	cr_assert(eq(uint, gpuwm_dtype_bits(GPUWM_F4), 4));
	cr_assert(eq(uint, gpuwm_dtype_bits(GPUWM_F6_E2M3), 6));
	cr_assert(eq(uint, gpuwm_dtype_bits(GPUWM_C64), 64));
	/* 20 bytes for 32: 5 bits on average, but no element has 5 bits. */
	cr_assert(eq(uint, gpuwm_dtype_bits(GPUWM_Q4_1), 0));
	cr_assert(eq(uint, gpuwm_dtype_bits(99), 0));
	cr_assert(eq(int, gpuwm_dtype_block(GPUWM_Q4_K, &elements, &bytes), 0));
	cr_assert(elements == 256 && bytes == 144);
	cr_assert(eq(int, gpuwm_dtype_block(GPUWM_BF16, &elements, &bytes), 0));
	cr_assert(elements == 1 && bytes == 2);
	cr_assert(eq(int, gpuwm_dtype_block(99, &elements, &bytes), -EINVAL));
	cr_assert(strstr(gpuwm_error()->message, "there is no dtype 99") != NULL);
}
