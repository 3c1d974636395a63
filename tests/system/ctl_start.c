/* gpuwmctl start, restart and stop: a user's own gpuwmd, in the background and as a unit of systemd. */
#include "starter.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define NOBODY 65534

TestSuite(ctl_start, .fini = starter_end);

static void hub_make(void)
{
	static const char *const folders[] = {".cache", ".cache/huggingface", ".cache/huggingface/hub"};
	char path[160];

	for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
		snprintf(path, sizeof path, "%s/%s", starter_home, folders[i]);
		cr_assert_eq(mkdir(path, 0700), 0);
	}
}

/* ---- in the background -------------------------------------------------- */

Test(ctl_start, starts_once_where_every_client_looks)
{
	struct gpuwm_client *client;
	char path[160];

	starter_make(true);
	hub_make(); /* the last line of the log is no warning of a root then */
	CTL_IS(0, "start");
	starter_says("socket: %s/gpuwm/gpuwm.sock; every program of this user finds it\n", starter_runtime);
	starter_says("log: %s/.local/state/gpuwm/gpuwmd.log\n", starter_home);
	starter_says("models are loaded from below: %s/.cache/huggingface/hub\n", starter_home);
	SAYS("the weights end with gpuwmctl stop, or when this machine or container ends\n");
	CTL_IS(0, "logs", "-n", "1");
	SAYS("gpuwm-keeper: info: gpuwmd is ready\n");
	client = starter_client();
	snprintf(path, sizeof path, "%s/gpuwm/gpuwm.sock", starter_runtime);
	cr_expect_str_eq(gpuwm_socket_path(client), path);
	gpuwm_close(client);
	CTL_IS(0, "start");
	SAYS("runs already, since 20");
	SAYS("under gpuwm-keeper (pid ");
	CTL_IS(0, "-o", "json", "start");
	SAYS("{\"started\":false,\"version\":\"");
	CTL_IS(5, "start", "--root", starter_home);
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

	starter_make(true);
	CTL_IS(0, "start", "--root", starter_place.root);
	CTL_IS(0, "load", "--wait", checkpoint_write(&starter_place, "one", SMALL(1)), "m@v1");
	before = starter_pid();
	CTL_IS(0, "restart");
	SAYS("it has taken 1 versions over, without loading a byte\n");
	starter_says("huggingface/hub,%s\n", starter_place.root);
	cr_assert_neq(starter_pid(), before);
	cr_assert(EVENTUALLY(SOON_MS, !process_is_named(before, "gpuwmd")));
	worker_reads(&starter_place, "m@v1", 1);
	CTL_IS(0, "restart", "--root", starter_home);
	starter_says("huggingface/hub,%s\n", starter_home);
	CTL_IS(0, "-o", "json", "stop");
	SAYS("\"versions\":1,");
}

/* They would be gpuwmd's, too. */
Test(ctl_start, variables_of_a_service_that_gpuwmctl_runs_in_do_not_count)
{
	struct gpuwm_client *client;
	json_t *status;

	starter_make(true);
	setenv("STATE_DIRECTORY", starter_home, 1);
	CTL_IS(0, "start");
	client = starter_client();
	status = query(client, "status", NULL);
	cr_expect_null(json_object_get(json_object_get(status, "tiers"), "folder"));
	json_decref(status);
	gpuwm_close(client);
	CTL_IS(0, "stop");
}

Test(ctl_start, without_a_runtime_folder_the_socket_is_in_the_home)
{
	char path[160];
	struct stat st;

	starter_make(false);
	snprintf(path, sizeof path, "/run/user/%u/gpuwm/gpuwm.sock", geteuid());
	SKIP_UNLESS(access(path, F_OK) < 0, "this user runs a gpuwmd, which is found first");
	CTL_IS(0, "start");
	starter_says("socket: %s/.local/state/gpuwm/gpuwm.sock; every program", starter_home);
	snprintf(path, sizeof path, "%s/.local/state/gpuwm", starter_home);
	cr_assert_eq(stat(path, &st), 0);
	cr_expect_eq(st.st_mode & 07777, 0700);
	/* Of a shell that has a runtime folder, too. */
	setenv("XDG_RUNTIME_DIR", starter_runtime, 1);
	CTL_IS(0, "start");
	SAYS("runs already");
	CTL_IS(0, "stop");
}

Test(ctl_start, a_home_that_is_too_long_for_a_socket_is_an_error)
{
	char folder[200];

	starter_make(false);
	snprintf(folder, sizeof folder, "%s/%080d", starter_home, 0);
	cr_assert_eq(mkdir(folder, 0700), 0);
	setenv("HOME", folder, 1);
	CTL_IS(1, "start");
	SAYS("a socket's path has at most 107 bytes, and take-over.sock there needs ");
	SAYS("set GPUWM_SOCKET to a shorter path");
	setenv("GPUWM_SOCKET", starter_place.socket, 1);
	CTL_IS(0, "start");
	starter_says("socket: %s; clients find it if GPUWM_SOCKET is set to that\n", starter_place.socket);
	CTL_IS(0, "stop");
}

static bool file_has(const char *path, const char *words)
{
	char command[256];

	snprintf(command, sizeof command, "grep -q '%s' '%s'", words, path);
	return system(command) == 0;
}

/* Each has its own log, also if its gpuwmd does not answer. */
Test(ctl_start, two_of_one_user_have_two_logs)
{
	char first[160], second[256], *slash;
	pid_t pid;

	starter_make(true);
	CTL_IS(0, "start");
	snprintf(first, sizeof first, "%s/.local/state/gpuwm/gpuwmd.log", starter_home);
	snprintf(second, sizeof second, "%s/.local/state/gpuwm/gpuwmd%s.log", starter_home, starter_place.dir);
	slash = second + strlen(starter_home) + strlen("/.local/state/gpuwm/");
	while ((slash = strchr(slash, '/')))
		*slash = '+';
	pid = starter_pid();
	CTL_IS(0, "--socket", starter_place.socket, "start", "--root", starter_place.root);
	starter_says("log: %s\n", second);
	cr_expect_eq(starter_pid(), pid);
	cr_expect(file_has(second, starter_place.root) && !file_has(first, starter_place.root));
	CTL_IS(0, "logs");
	cr_expect_not(strstr(output, starter_place.root), "%s", output);
	CTL_IS(0, "--socket", starter_place.socket, "logs");
	SAYS(starter_place.root);
	setenv("GPUWM_SOCKET", starter_place.socket, 1);
	pid = starter_pid();
	cr_assert_eq(kill(pid, SIGSTOP), 0);
	CTL_IS(0, "logs");
	SAYS(starter_place.root);
	cr_assert_eq(kill(pid, SIGCONT), 0);
	CTL_IS(0, "stop");
	unsetenv("GPUWM_SOCKET");
	CTL_IS(0, "stop");
}

Test(ctl_start, a_socket_of_another_user_is_not_taken)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char folder[96];
	int sock;

	starter_make(true);
	NEEDS_ROOT();
	snprintf(folder, sizeof folder, "%s/gpuwm", starter_runtime);
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

	starter_make(true);
	snprintf(path, sizeof path, "%s/.config", starter_home);
	cr_assert_eq(mkdir(path, 0700), 0);
	snprintf(path, sizeof path, "%s/.config/gpuwm", starter_home);
	cr_assert_eq(mkdir(path, 0700), 0);
	snprintf(path, sizeof path, "%s/.config/gpuwm/gpuwmd.conf", starter_home);
	file = fopen(path, "we");
	cr_assert(file && fprintf(file, "[loader]\nroot = %s\n", starter_place.root) > 0 && fclose(file) == 0);
	CTL_IS(0, "start");
	starter_says("models are loaded from below: %s\n", starter_place.root);
	CTL_IS(0, "stop");
	file = fopen(path, "ae");
	cr_assert(file && fputs("nonsense\n", file) >= 0 && fclose(file) == 0);
	CTL_IS(1, "start");
	SAYS("gpuwmd.conf:3: this is neither [section] nor key = value");
	starter_says("gpuwmd has not started: see %s/.local/state/gpuwm/gpuwmd.log\n", starter_home);
	cr_assert(nobody_listens());
}

/* As huggingface_hub reads them, which fills the folder. */
Test(ctl_start, the_hub_s_cache_may_be_named_with_a_tilde_or_a_relative_path)
{
	static char name[5000];

	starter_make(true);
	hub_make();
	setenv("HF_HOME", "~/.cache/huggingface", 1);
	CTL_IS(0, "start");
	starter_says("models are loaded from below: %s/.cache/huggingface/hub\n", starter_home);
	cr_assert(!strstr(output, "relative"), "%s", output);
	cr_assert_eq(chdir(starter_runtime), 0);
	setenv("HF_HUB_CACHE", "../home/$NAMES/hub", 1);
	setenv("NAMES", ".cache/huggingface", 1);
	CTL_IS(0, "restart", "--budget", "host=1G");
	starter_says(
		"HF_HUB_CACHE names a folder relative to this one: gpuwmd takes %s/.cache/huggingface/hub\n",
		starter_home);
	starter_says("models are loaded from below: %s/.cache/huggingface/hub\n", starter_home);
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

/* Puts programs in front of PATH that stand for a user's systemd of this release. Its systemd-run writes its words to the file
 * `words`, and runs the command in the foreground, as systemd reads it: $$ is $. */
static void systemd_make(const char *version)
{
	char path[4096];

	starter_make(true);
	starter_shell("mkdir %1$s/fake; echo 'echo Version=%2$s' >%1$s/fake/systemctl", starter_place.dir,
		      version);
	starter_shell("cat >%1$s/fake/systemd-run <<'END'\n"
		      "printf '%%s\\n' \"$@\" >%1$s/words\n"
		      "while [ \"$1\" != -- ]; do shift; done\n"
		      "script=$(printf %%s \"$4\" | sed 's/[$][$]/$/g'); log=$5; shift 5\n"
		      "/bin/sh -c \"$script\" \"$log\" \"$@\" || { echo 'Job for it failed'; exit 1; }\n"
		      "END\n",
		      starter_place.dir, "");
	starter_shell("sed -i '1i #!/bin/sh' %1$s/fake/*; chmod +x %1$s/fake/*", starter_place.dir, "");
	snprintf(path, sizeof path, "%s/fake:%s", starter_place.dir, getenv("PATH"));
	setenv("PATH", path, 1);
}

/* So that gpuwmd ends, and its start fails. */
static void configuration_break(void)
{
	starter_shell("mkdir -p %1$s/.config/gpuwm; echo nonsense >%1$s/.config/gpuwm/gpuwmd.conf",
		      starter_home, "");
}

Test(ctl_start, a_unit_that_fails_shows_its_log)
{
	systemd_make("252.39-1~deb12u2");
	configuration_break();
	CTL_IS(1, "start");
	SAYS("gpuwmd.conf:1: this is neither [section] nor key = value");
	SAYS("gpuwmd has not started as gpuwm-");
	starter_says(".service: see %s/.local/state/gpuwm/gpuwmd.log\n  the lines above are those of its log\n",
		     starter_home);
	/* systemd-run itself fails. */
	starter_shell(
		"echo 'echo Unknown assignment; exit 1' >>%s/fake/head; sed -i '1r %1$s/fake/head' %1$s/fake/systemd-run",
		starter_place.dir, "");
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
		/* It may have more to say on stderr than gpuwmctl reads, if a variable asks for it. */
		starter_shell(
			"printf '#!/bin/sh\\nprintf %%%%0300d 0 >&2; echo \"Version=%2$s\"\\n' >%1$s/fake/systemctl",
			starter_place.dir, releases[i].version);
		CTL_IS(1, "start");
		starter_shell(releases[i].knows ? "grep -qxe --property=OOMPolicy=continue %s/words"
						: "! grep -qe OOM %s/words && grep -q gpuwmd %1$s/words",
			      starter_place.dir, "");
	}
}

/* A folder may have any name, and systemd replaces variables in a command. */
Test(ctl_start, a_unit_gets_names_as_they_are)
{
	char folder[128];

	systemd_make("252");
	configuration_break();
	snprintf(folder, sizeof folder, "%s/${HOME}$$", starter_home);
	cr_assert_eq(mkdir(folder, 0700), 0);
	CTL_IS(1, "start", "--root", folder);
	starter_shell("grep -qxF '%s/$${HOME}$$$$' %s/words", starter_home, starter_place.dir);
}
