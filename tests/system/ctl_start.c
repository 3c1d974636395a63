/* gpuwmctl start, restart and stop: a user's own gpuwmd, in the background and on a terminal. */
#include "harness.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534
#define START_MS 20000 /* a start takes 30 ms */

static struct gpuwmd place; /* of which only the folder is used */
static char home[80], runtime[80];

/* A user who has a home, and a folder for sockets if `has_runtime`; no systemd and no variables of gpuwm. */
static void user_make(bool has_runtime)
{
	SKIP_UNLESS(backend() == BACKEND_HOST, "gpuwmctl starts the same programs on every memory kind");
	folder_make(&place);
	snprintf(home, sizeof home, "%s/home", place.dir);
	snprintf(runtime, sizeof runtime, "%s/run", place.dir);
	cr_assert(mkdir(home, 0700) == 0 && mkdir(runtime, 0700) == 0);
	setenv("HOME", home, 1);
	setenv("XDG_RUNTIME_DIR", runtime, 1);
	if (!has_runtime)
		unsetenv("XDG_RUNTIME_DIR");
	unsetenv("DBUS_SESSION_BUS_ADDRESS");
	unsetenv("XDG_CONFIG_HOME");
	unsetenv("HF_HOME");
	unsetenv("HF_HUB_CACHE");
	unsetenv("HUGGINGFACE_HUB_CACHE");
	unsetenv("XDG_CACHE_HOME");
	unsetenv("GPUWM_SOCKET");
}

/* A test that was skipped has no user: stop would end the gpuwmd of whoever runs the tests. */
static void user_end(void)
{
	if (*home)
		CTL("stop");
	harness_cleanup();
}
TestSuite(ctl_start, .fini = user_end);

static struct gpuwm_client *connected(void)
{
	struct gpuwm_client *client = NULL;

	OK(gpuwm_connect(NULL, &client));
	return client;
}

static pid_t pid_now(void)
{
	struct gpuwm_client *client = connected();
	json_t *status = query(client, "status", NULL);
	pid_t pid = (pid_t)json_integer_value(json_object_get(status, "pid"));

	json_decref(status);
	gpuwm_close(client);
	return pid;
}

/* Of this user: the system's may run besides, and let this user in or not. Without waiting for one that goes away. */
static bool nobody_listens(void)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_client *client;
	bool is_systems;
	int r;

	options.flags = GPUWM_CONNECT_ONCE;
	r = gpuwm_connect(&options, &client);
	if (r < 0)
		return r == -ENOENT || r == -ECONNREFUSED || r == -EACCES;
	is_systems = strcmp(gpuwm_socket_path(client), "/run/gpuwm/gpuwm.sock") == 0;
	gpuwm_close(client);
	return is_systems;
}

static void says(const char *format, const char *folder)
{
	char words[256];

	snprintf(words, sizeof words, format, folder);
	SAYS(words);
}

static void hub_make(void)
{
	static const char *const folders[] = {".cache", ".cache/huggingface", ".cache/huggingface/hub"};
	char path[160];

	for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
		snprintf(path, sizeof path, "%s/%s", home, folders[i]);
		cr_assert_eq(mkdir(path, 0700), 0);
	}
}

/* ---- in the background -------------------------------------------------- */

Test(ctl_start, starts_once_where_every_client_looks)
{
	struct gpuwm_client *client;
	char path[160];

	user_make(true);
	hub_make(); /* the last line of the log is no warning of a root then */
	CTL_IS(0, "start");
	says("socket: %s/gpuwm/gpuwm.sock; every program of this user finds it\n", runtime);
	says("log: %s/.local/state/gpuwm/gpuwmd.log\n", home);
	says("models are loaded from below: %s/.cache/huggingface/hub\n", home);
	SAYS("the weights end with gpuwmctl stop, or when this machine or container ends\n");
	CTL_IS(0, "logs", "-n", "1");
	SAYS("gpuwm-keeper: info: gpuwmd is ready\n");
	client = connected();
	snprintf(path, sizeof path, "%s/gpuwm/gpuwm.sock", runtime);
	cr_expect_str_eq(gpuwm_socket_path(client), path);
	gpuwm_close(client);
	CTL_IS(0, "start");
	SAYS("runs already, since 20");
	SAYS("under gpuwm-keeper (pid ");
	CTL_IS(0, "-o", "json", "start");
	SAYS("{\"started\":false,\"version\":\"");
	CTL_IS(5, "start", "--root", home);
	SAYS("the options of this start don't reach it\n  gpuwmctl restart with these options");
	CTL_IS(0, "stop");
	SAYS("let go: 0 versions with 0 B\n");
	cr_assert(nobody_listens());
	CTL_IS(0, "stop");
	SAYS("no gpuwmd of this user runs");
	CTL_IS(0, "-o", "json", "stop");
	SAYS("\"keeper\":0}");
}

Test(ctl_start, a_restart_keeps_weights_and_options)
{
	pid_t before;

	user_make(true);
	CTL_IS(0, "start", "--root", place.root);
	CTL_IS(0, "load", "--wait", checkpoint_write(&place, "one", SMALL(1)), "m@v1");
	before = pid_now();
	CTL_IS(0, "restart");
	SAYS("it has taken 1 versions over, without loading a byte\n");
	says("huggingface/hub,%s\n", place.root);
	cr_assert_neq(pid_now(), before);
	cr_assert(EVENTUALLY(SOON_MS, !process_is_named(before, "gpuwmd")));
	worker_reads(&place, "m@v1", 1);
	CTL_IS(0, "restart", "--root", home);
	says("huggingface/hub,%s\n", home);
	CTL_IS(0, "-o", "json", "stop");
	SAYS("\"versions\":1,");
}

Test(ctl_start, without_a_runtime_folder_the_socket_is_in_the_home)
{
	char path[160];
	struct stat st;

	user_make(false);
	snprintf(path, sizeof path, "/run/user/%u/gpuwm/gpuwm.sock", geteuid());
	SKIP_UNLESS(access(path, F_OK) < 0, "this user runs a gpuwmd, which is found first");
	CTL_IS(0, "start");
	says("socket: %s/.local/state/gpuwm/gpuwm.sock; every program", home);
	snprintf(path, sizeof path, "%s/.local/state/gpuwm", home);
	cr_assert_eq(stat(path, &st), 0);
	cr_expect_eq(st.st_mode & 07777, 0700);
	/* Of a shell that has a runtime folder, too. */
	setenv("XDG_RUNTIME_DIR", runtime, 1);
	CTL_IS(0, "start");
	SAYS("runs already");
	CTL_IS(0, "stop");
}

Test(ctl_start, a_home_that_is_too_long_for_a_socket_is_an_error)
{
	char folder[200];

	user_make(false);
	snprintf(folder, sizeof folder, "%s/%080d", home, 0);
	cr_assert_eq(mkdir(folder, 0700), 0);
	setenv("HOME", folder, 1);
	CTL_IS(1, "start");
	SAYS("a socket's path has at most 107 bytes, and take-over.sock there needs ");
	SAYS("set GPUWM_SOCKET to a shorter path");
	setenv("GPUWM_SOCKET", place.socket, 1);
	CTL_IS(0, "start");
	says("socket: %s; clients find it if GPUWM_SOCKET is set to that\n", place.socket);
	CTL_IS(0, "stop");
}

Test(ctl_start, a_socket_of_another_user_is_not_taken)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char folder[96];
	int sock;

	user_make(true);
	NEEDS_ROOT();
	snprintf(folder, sizeof folder, "%s/gpuwm", runtime);
	cr_assert_eq(mkdir(folder, 0777), 0);
	snprintf(address.sun_path, sizeof address.sun_path, "%s/gpuwm.sock", folder);
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(sock, (struct sockaddr *)&address, sizeof address), 0);
	/* The kernel says of a listener who called listen(2). */
	cr_assert(seteuid(NOBODY) == 0 && listen(sock, 4) == 0 && seteuid(0) == 0);
	prctl(PR_SET_DUMPABLE, 1);
	CTL_IS(6, "start");
	SAYS("uid 65534 listens there, and only uid 0 or root may\n");
	SAYS("name the socket of a gpuwmd that you trust with GPUWM_SOCKET");
	CTL_IS(6, "ls");
	close(sock);
}

Test(ctl_start, a_configuration_of_the_user_counts)
{
	char path[160];
	FILE *file;

	user_make(true);
	snprintf(path, sizeof path, "%s/.config", home);
	cr_assert_eq(mkdir(path, 0700), 0);
	snprintf(path, sizeof path, "%s/.config/gpuwm", home);
	cr_assert_eq(mkdir(path, 0700), 0);
	snprintf(path, sizeof path, "%s/.config/gpuwm/gpuwmd.conf", home);
	file = fopen(path, "we");
	cr_assert(file && fprintf(file, "[loader]\nroot = %s\n", place.root) > 0 && fclose(file) == 0);
	CTL_IS(0, "start");
	says("models are loaded from below: %s\n", place.root);
	CTL_IS(0, "stop");
	file = fopen(path, "ae");
	cr_assert(file && fputs("nonsense\n", file) >= 0 && fclose(file) == 0);
	CTL_IS(1, "start");
	SAYS("gpuwmd.conf:3: this is neither [section] nor key = value");
	says("gpuwmd has not started: see %s/.local/state/gpuwm/gpuwmd.log\n", home);
	cr_assert(nobody_listens());
}

/* As huggingface_hub reads them, which fills the folder. */
Test(ctl_start, the_hub_s_cache_may_be_named_with_a_tilde_or_a_relative_path)
{
	static char name[5000];

	user_make(true);
	hub_make();
	setenv("HF_HOME", "~/.cache/huggingface", 1);
	CTL_IS(0, "start");
	says("models are loaded from below: %s/.cache/huggingface/hub\n", home);
	cr_assert(!strstr(output, "relative"), "%s", output);
	cr_assert_eq(chdir(runtime), 0);
	setenv("HF_HUB_CACHE", "../home/$NAMES/hub", 1);
	setenv("NAMES", ".cache/huggingface", 1);
	CTL_IS(0, "restart", "--budget", "host=1G");
	says("HF_HUB_CACHE names a folder relative to this one: gpuwmd takes %s/.cache/huggingface/hub\n",
	     home);
	says("models are loaded from below: %s/.cache/huggingface/hub\n", home);
	CTL_IS(0, "stop");
	memset(name, 'a', sizeof name - 1);
	setenv("HF_HUB_CACHE", name, 1);
	CTL_IS(1, "start");
	SAYS("the folder of the Hugging Face hub's cache can't be found out: File name too long\n");
	SAYS("set HF_HUB_CACHE to the folder");
}

GPUWMD_TEST_BY(ctl_start, a_gpuwmd_of_others_is_left_alone, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	CTL_IS(0, "start");
	SAYS("runs already");
	CTL_IS(1, "stop");
	SAYS("gpuwmctl start has not started the gpuwmd (pid ");
	CTL_IS(1, "restart");
	SAYS("nothing keeps the weights of this gpuwmd over a restart");
}

/* ---- a unit ---------------------------------------------------------------- */

static void shell(const char *format, const char *first, const char *second)
{
	char command[1024];

	snprintf(command, sizeof command, format, first, second);
	cr_assert_eq(system(command), 0, "%s", command);
}

/* Puts programs in front of PATH that stand for a user's systemd of this release. Its systemd-run writes its words to the file
 * `words`, and runs the command in the foreground, as systemd reads it: $$ is $. */
static void systemd_make(const char *version)
{
	char path[4096];

	user_make(true);
	shell("mkdir %1$s/fake; echo 'echo Version=%2$s' >%1$s/fake/systemctl", place.dir, version);
	shell("cat >%1$s/fake/systemd-run <<'END'\n"
	      "printf '%%s\\n' \"$@\" >%1$s/words\n"
	      "while [ \"$1\" != -- ]; do shift; done\n"
	      "script=$(printf %%s \"$4\" | sed 's/[$][$]/$/g'); log=$5; shift 5\n"
	      "/bin/sh -c \"$script\" \"$log\" \"$@\" || { echo 'Job for it failed'; exit 1; }\n"
	      "END\n",
	      place.dir, "");
	shell("sed -i '1i #!/bin/sh' %1$s/fake/*; chmod +x %1$s/fake/*", place.dir, "");
	snprintf(path, sizeof path, "%s/fake:%s", place.dir, getenv("PATH"));
	setenv("PATH", path, 1);
}

/* So that gpuwmd ends, and its start fails. */
static void configuration_break(void)
{
	shell("mkdir -p %1$s/.config/gpuwm; echo nonsense >%1$s/.config/gpuwm/gpuwmd.conf", home, "");
}

Test(ctl_start, a_unit_that_fails_shows_its_log)
{
	systemd_make("252.39-1~deb12u2");
	configuration_break();
	CTL_IS(1, "start");
	SAYS("gpuwmd.conf:1: this is neither [section] nor key = value");
	SAYS("gpuwmd has not started as gpuwm-");
	says(".service: see %s/.local/state/gpuwm/gpuwmd.log\n  the lines above are those of its log\n", home);
	/* systemd-run itself fails. */
	shell("echo 'echo Unknown assignment; exit 1' >>%s/fake/head; sed -i '1r %1$s/fake/head' %1$s/fake/systemd-run",
	      place.dir, "");
	CTL_IS(1, "start");
	SAYS(".service, and its log is empty: Unknown assignment\n  the journal says more: ");
}

/* What an older one does not know, it refuses. */
Test(ctl_start, a_unit_survives_a_loader_that_is_killed_for_want_of_memory)
{
	static const struct {
		const char *version;
		bool knows;
	} releases[] = {{"252.39-1~deb12u2", true}, {"243", true}, {"239 (239-82.el8)", false}};

	systemd_make("");
	configuration_break();
	for (size_t i = 0; i < sizeof releases / sizeof *releases; i++) {
		shell("printf '#!/bin/sh\\necho \"Version=%2$s\"\\n' >%1$s/fake/systemctl", place.dir,
		      releases[i].version);
		CTL_IS(1, "start");
		shell(releases[i].knows ? "grep -qxe --property=OOMPolicy=continue %s/words"
					: "! grep -qe OOM %s/words && grep -q gpuwmd %1$s/words",
		      place.dir, "");
	}
}

/* A folder may have any name, and systemd replaces variables in a command. */
Test(ctl_start, a_unit_gets_names_as_they_are)
{
	char folder[128];

	systemd_make("252");
	configuration_break();
	snprintf(folder, sizeof folder, "%s/${HOME}$$", home);
	cr_assert_eq(mkdir(folder, 0700), 0);
	CTL_IS(1, "start", "--root", folder);
	shell("grep -qxF '%s/$${HOME}$$$$' %s/words", home, place.dir);
}

/* ---- releases ------------------------------------------------------------ */

/* Programs in a folder of their own, as those of an environment of Python. */
static void environment_make(char ret_bin[160])
{
	snprintf(ret_bin, 160, "%s/env/bin", place.dir);
	shell("mkdir -p %1$s; ln -s %2$s/lib %1$s/../lib; cp %2$s/bin/gpuwmctl %2$s/bin/gpuwm-keeper %2$s/bin/gpuwmd "
	      "%2$s/bin/gpuwm-loader %1$s",
	      ret_bin, build_path());
}

Test(ctl_start, other_releases_and_lost_files_are_told)
{
	char bin[160];

	user_make(true);
	environment_make(bin);
	shell("%s/gpuwmctl start >%s/out", bin, place.dir);
	CTL_IS(0, "version");
	says(", %s/gpuwmd (pid ", bin);
	cr_assert(!strstr(output, "restart"), "%s", output);
	/* An upgrade. */
	shell("cp %s/tests/next/gpuwmd %s/new", build_path(), bin);
	shell("mv %s/new %s/gpuwmd", bin, bin);
	CTL_IS(0, "version");
	says(") runs from a file that was replaced or removed: %s/gpuwmd; gpuwmctl restart takes over without losing "
	     "weights\n",
	     bin);
	CTL_IS(0, "status");
	SAYS("; gpuwmctl version says what to do\n");
	shell("%s/gpuwmctl restart >%s/out", bin, place.dir);
	CTL_IS(0, "version");
	SAYS("\ngpuwmd is ");
	says("-next (pid %s", "");
	says(", %s/gpuwmd), gpuwmctl is ", bin);
	says(" (%s/bin/gpuwmctl); gpuwmctl restart takes over without losing weights\n", build_path());
	CTL_IS(0, "start");
	SAYS("gpuwmctl version says what to do\n");
	/* This gpuwmd can't read the newer state: the other one goes on. */
	CTL_IS(1, "restart");
	SAYS("the state is of format 2, this gpuwmd reads up to 1");
	SAYS("gpuwmd has not started: ");
	shell("rm -r %s %s/out", bin, place.dir);
	CTL_IS(0, "version");
	SAYS("-next (pid ");
	SAYS("runs from a file that was replaced or removed: ");
}

/* Starts a gpuwmd with m@v1 from an environment, and removes that. Returns its pid. */
static pid_t uninstalled(void)
{
	char bin[160];

	user_make(true);
	environment_make(bin);
	shell("%s/gpuwmctl start --root %s >/dev/null", bin, place.root);
	CTL_IS(0, "load", "--wait", checkpoint_write(&place, "one", SMALL(1)), "m@v1");
	shell("rm -r %s/env", place.dir, "");
	return pid_now();
}

Test(ctl_start, a_gpuwmd_whose_files_were_removed_goes_on)
{
	const pid_t gpuwmd = uninstalled();
	pid_t loaders[CHILDREN_MAX];
	const char *file = checkpoint_write(&place, "two", SMALL(2));

	worker_reads(&place, "m@v1", 1);
	/* The loader that stands by may do one more job. */
	for (size_t count = children_of(gpuwmd, loaders, CHILDREN_MAX); count > 0; count--)
		kill(loaders[count - 1], SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, children_of(gpuwmd, loaders, CHILDREN_MAX) == 0));
	CTL_IS(1, "load", "--wait", file, "m@v2");
	says("%s/env/bin/gpuwm-loader could not be started: No such file or directory\n", place.dir);
	SAYS("gpuwmd's own file was removed, too: gpuwmctl version says how ");
	CTL_IS(0, "version");
	SAYS("; gpuwmctl restart takes over without losing weights\n");
	CTL_IS(0, "restart");
	SAYS("it has taken 1 versions over, without loading a byte\n");
	worker_reads(&place, "m@v1", 1);
	CTL_IS(0, "load", "--wait", file, "m@v2");
	worker_reads(&place, "m@v2", 2);
}

static void keeper_holds(pid_t gpuwmd)
{
	cr_assert_eq(kill(gpuwmd, SIGKILL), 0);
	cr_assert(EVENTUALLY(SOON_MS, !process_is_named(gpuwmd, "gpuwmd")));
}

Test(ctl_start, gpuwm_keeper_holds_the_weights_of_a_gpuwmd_that_was_removed_and_killed)
{
	keeper_holds(uninstalled());
	CTL_IS(3, "start");
	SAYS(" keeps the weights, and can't start gpuwmd: there is no ");
	says("%s/env/bin/gpuwmd any more\n  gpuwmctl restart takes over without losing weights", place.dir);
	CTL_IS(7, "wait", "m@v1", "--for", "ready", "--timeout", "2s");
	says("there is no %s/env/bin/gpuwmd any more\n", place.dir);
	CTL_IS(0, "logs");
	says("gpuwm-keeper: error: %s/env/bin/gpuwmd can't be run: No such file", place.dir);
	CTL_IS(0, "restart");
	SAYS("it has taken 1 versions over, without loading a byte\n");
	worker_reads(&place, "m@v1", 1);
}

Test(ctl_start, a_gpuwmd_that_was_removed_and_killed_is_ended)
{
	keeper_holds(uninstalled());
	CTL_IS(0, "stop");
	SAYS("all weights are let go\n");
	cr_assert(nobody_listens());
}

Test(ctl_start, a_gpuwmd_that_can_t_be_asked_is_ended)
{
	char bin[160];

	user_make(true);
	environment_make(bin);
	shell("cp %s/tests/later/gpuwmd %s/gpuwmd", build_path(), bin);
	shell("! %s/gpuwmctl start 2>%s/out", bin, place.dir);
	CTL_IS(3, "start");
	SAYS("gpuwm-keeper (pid ");
	SAYS("its gpuwmd gives no answer: the client speaks protocol 1 to 1, gpuwmd ");
	CTL_IS(0, "logs");
	SAYS("gpuwm-keeper: info: gpuwmd is started (process ");
	CTL_IS(0, "stop");
	SAYS("all weights are let go\n");
	cr_assert(nobody_listens());
}

/* OWN_ANSWER_MS, for which gpuwmctl waits, and 3 s for a machine that is busy. By default a connection may take 30 s. */
#define TOLD_MS 8000

Test(ctl_start, a_gpuwmd_that_hangs_is_told)
{
	int64_t began;
	pid_t gpuwmd;

	user_make(true);
	CTL_IS(0, "start");
	gpuwmd = pid_now();
	cr_assert_eq(kill(gpuwmd, SIGSTOP), 0);
	began = clock_ms();
	CTL_IS(3, "start");
	cr_expect_leq(clock_ms() - began, TOLD_MS);
	SAYS("its gpuwmd gives no answer: ");
	began = clock_ms();
	CTL_IS(0, "logs");
	cr_expect_leq(clock_ms() - began, TOLD_MS);
	SAYS("gpuwm-keeper: info: gpuwmd is ready\n");
	cr_assert_eq(kill(gpuwmd, SIGCONT), 0);
	CTL_IS(0, "start");
	SAYS("runs already, since 20");
	CTL_IS(0, "stop");
}

/* ---- on a terminal -------------------------------------------------------- */

struct terminal {
	pid_t pid;
	int fd;
};

/* Runs `gpuwmctl start --foreground` on a terminal until gpuwmd serves. */
static struct terminal foreground_start(void)
{
	struct terminal t;
	char program[512];
	size_t used = 0;

	user_make(true);
	snprintf(program, sizeof program, "%s/bin/gpuwmctl", build_path());
	t.pid = forkpty(&t.fd, NULL, NULL, NULL);
	if (t.pid == 0) {
		execl(program, program, "start", "--foreground", (char *)NULL);
		_exit(126);
	}
	output[0] = '\0';
	while (!strstr(output,
		       "the weights end with Ctrl-C, when this terminal is closed, or with gpuwmctl stop")) {
		struct pollfd ready = {.fd = t.fd, .events = POLLIN};
		ssize_t got;

		cr_assert(poll(&ready, 1, START_MS) == 1, "%s", output);
		got = read(t.fd, output + used, sizeof output - 1 - used);
		cr_assert(got > 0, "%s", output);
		output[used += (size_t)got] = '\0';
	}
	cr_assert(!nobody_listens());
	return t;
}

/* Whether it has ended, with this exit code, and gpuwmd with it. */
static void foreground_ended(struct terminal *t, int code)
{
	int status;

	cr_assert(EVENTUALLY(START_MS, waitpid(t->pid, &status, WNOHANG) == t->pid), "it goes on");
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == code, "%#x", status);
	cr_assert(nobody_listens());
}

Test(ctl_start, ctrl_c_ends_it)
{
	struct terminal t = foreground_start();
	ssize_t got;
	size_t used = 0;

	CTL_IS(4, "logs");
	SAYS("the log goes where gpuwmctl start --foreground (pid ");
	cr_assert_eq(write(t.fd, "\x03", 1), 1);
	while ((got = read(t.fd, output + used, sizeof output - 1 - used)) > 0)
		used += (size_t)got;
	output[used] = '\0';
	SAYS("Ctrl-C: gpuwmd ends, and lets its weights go");
	foreground_ended(&t, 0);
	close(t.fd);
}

Test(ctl_start, a_closed_terminal_ends_it)
{
	struct terminal t = foreground_start();

	close(t.fd);
	foreground_ended(&t, 0);
}

Test(ctl_start, a_killed_gpuwmctl_takes_gpuwmd_along)
{
	struct terminal t = foreground_start();

	cr_assert(kill(t.pid, SIGKILL) == 0 && waitpid(t.pid, NULL, 0) == t.pid);
	cr_assert(EVENTUALLY(START_MS, nobody_listens()), "gpuwmd goes on");
	close(t.fd);
}

Test(ctl_start, a_restart_takes_over_from_a_terminal)
{
	struct terminal t = foreground_start();
	int status;

	CTL_IS(0, "restart");
	cr_assert(EVENTUALLY(START_MS, waitpid(t.pid, &status, WNOHANG) == t.pid), "it goes on");
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%#x", status);
	cr_assert(!nobody_listens());
	CTL_IS(0, "stop");
	close(t.fd);
}
