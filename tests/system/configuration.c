/* Whether a configuration is right, and a new one for a gpuwmd that serves. */
#include "tiers.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(configuration);

#define ON_HOST() SKIP_UNLESS(backend() == BACKEND_HOST, "a configuration knows no memory kinds")

static const char *config_write(const struct gpuwmd *d, const char *text)
{
	static char path[96];
	FILE *file;

	snprintf(path, sizeof path, "%s/gpuwmd.conf", d->dir);
	file = fopen(path, "we");
	cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
	return path;
}

/* Runs `gpuwmd --check-config` on a file with this text and, unless it is NULL, with --set `set`: its exit code. */
static int check_config(const struct gpuwmd *d, const char *text, const char *set)
{
	const char *const words[] = {"--check-config",     "--config", config_write(d, text),
				     set ? "--set" : NULL, set,        NULL};
	pid_t pid = gpuwmd_spawn(d, words);
	int status = 0;

	cr_assert(EVENTUALLY(SOON_MS, waitpid(pid, &status, WNOHANG) == pid), "it does not leave");
	cr_assert(WIFEXITED(status), "%#x", status);
	return WEXITSTATUS(status);
}

Test(configuration, check_config_judges_file_and_flags_and_starts_nothing)
{
	struct gpuwmd d;

	ON_HOST();
	folder_make(&d);
	cr_expect_eq(check_config(&d, "[limits]\nsessions = 100\n", NULL), 0);
	cr_expect(log_says(&d, "gpuwmd.conf: no errors"));
	cr_expect_eq(check_config(&d, "[limits]\n\nsesions = 100\n", NULL), 2);
	cr_expect(log_says(&d, "gpuwmd.conf:3: there is no key \"sesions\" in [limits]"));
	cr_expect_eq(check_config(&d, "", "limits.sessions=none"), 2);
	cr_expect_eq(check_config(&d, "", "limits.sessions=1000000"), 1);
	cr_expect(log_says(&d, "1000000 sessions need up to"));
	cr_expect_eq(check_config(&d, "[socket]\ngroup = no-such-group\n", NULL), 1);
	cr_expect(log_says(&d, "[socket] group: there is no group \"no-such-group\" here"));
	cr_expect_eq(check_config(&d, "[model.1]\nmatch = *\nattach = @no-such-group\n", NULL), 2);
	cr_expect(log_says(&d, "gpuwmd.conf:3: [model.1] attach: there is no group \"no-such-group\" here"));
	cr_expect_neq(access(d.socket, F_OK), 0, "it made a socket");
}

GPUWMD_TEST_IF(configuration, check_config_leaves_a_gpuwmd_that_serves_alone, ON_HOST(), gpuwmd_start(NULL),
	       gpuwmd_stop)
{
	uint64_t ns;

	cr_expect_eq(check_config(d, "", NULL), 0);
	OK(gpuwm_ping(d->admin, &ns));
}

static uint64_t sessions_limit(struct gpuwmd *d)
{
	json_t *status = query(d->admin, "status", NULL);
	json_t *limits = json_object_get(status, "limits");
	uint64_t sessions = (uint64_t)json_integer_value(json_object_get(limits, "sessions_per_uid"));

	json_decref(status);
	return sessions;
}

GPUWMD_TEST_IF(configuration, gpuwmctl_reload_answers_when_the_new_one_is_in_force_or_with_the_error, ON_HOST(),
	       gpuwmd_new(), gpuwmd_stop)
{
	const char *path;

	path = config_write(d, "[limits]\nsessions_per_uid = 70\n");
	d->pid = gpuwmd_spawn(d, (const char *[]){"--config", path, NULL});
	gpuwmd_wait(d);
	config_write(d, "[limits]\nsessions_per_uid = 80\n");
	CTL_IS(0, "reload");
	cr_expect(strstr(output, path), "%s", output);
	cr_expect_eq(sessions_limit(d), 80);
	config_write(d, "[limits]\nsessions_per_uid = 90\nsesions = 9\n");
	CTL_IS(1, "reload");
	cr_expect(strstr(output, "gpuwmd.conf:3: ") && strstr(output, "\"sesions\"") &&
			  strstr(output, "there are ") && strstr(output, "the old configuration stays"),
		  "%s", output);
	cr_expect_eq(sessions_limit(d), 80);
	/* doctor asks gpuwmd which file that is. */
	CTL_IS(1, "doctor");
	cr_expect(strstr(output, "configuration ") && strstr(output, "gpuwmd.conf:3: "), "%s", output);
	unlink(path);
	CTL_IS(4, "reload");
}

/* Each judges with the same words what the next start would refuse. */
GPUWMD_TEST_IF(configuration, names_that_are_not_there_are_refused_everywhere, ON_HOST(), gpuwmd_new(),
	       gpuwmd_stop)
{
	static const struct {
		const char *text, *says;
	} wrong[] = {
		{"[socket]\ngroup = no-such-group\n",
		 "[socket] group: there is no group \"no-such-group\" here"},
		{"[socket]\nadmin_mode = 0660\nadmin_group = no-such-group\n",
		 "[socket] admin_group: there is no group \"no-such-group\" here"},
		{"[access]\npublish_group = no-such-group\n",
		 "[access] publish_group: there is no group \"no-such-group\" here"},
		{"[access]\nobserve_group = no-such-group\n",
		 "[access] observe_group: there is no group \"no-such-group\" here"},
		{"[model.1]\nmatch = *\npublish = no-such-user\n",
		 "[model.1] publish: there is no user \"no-such-user\" here"},
		{"[model.1]\nmatch = *\noperate = @no-such-group\n",
		 "[model.1] operate: there is no group \"no-such-group\" here"},
	};
	const char *path = config_write(d, "");

	d->pid = gpuwmd_spawn(d, (const char *[]){"--config", path, NULL});
	gpuwmd_wait(d);
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		cr_expect_neq(check_config(d, wrong[i].text, NULL), 0, "%s", wrong[i].says);
		cr_expect(log_says(d, wrong[i].says), "%s", wrong[i].says);
		CTL_IS(1, "reload");
		cr_expect(strstr(output, wrong[i].says) && strstr(output, "the old configuration stays"), "%s",
			  output);
		CTL_IS(1, "doctor");
		cr_expect(strstr(output, wrong[i].says), "%s", output);
	}
}

GPUWMD_TEST_IF(configuration, gpuwmctl_reload_is_for_operators, ON_HOST(), gpuwmd_start(NULL), gpuwmd_stop)
{
	struct gpuwm_client *worker;

	worker = client_new();
	FAILS(EACCES, gpuwm_reload(worker));
	OK(gpuwm_reload(d->admin));
	CTL_IS(0, "-o", "json", "reload");
	cr_expect_str_eq(output, "{}\n");
	gpuwm_close(worker);
}

/* ---- where it serves -------------------------------------------------- */

/* Starts gpuwmd with this flag alone, so that GPUWM_SOCKET says where it serves. */
static pid_t start_bare(const struct gpuwmd *d, const char *flag, const char *value)
{
	char program[512];
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(program, sizeof program, "%s/bin/gpuwmd", build_path());
	dup2(open(d->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644), 2);
	execl(program, "gpuwmd", flag, value, (char *)NULL);
	_exit(127);
}

GPUWMD_TEST_IF(configuration, gpuwmd_serves_where_clients_look, ON_HOST(), gpuwmd_new(), gpuwmd_stop_empty)
{
	d->pid = start_bare(d, "--root", d->root);
	gpuwmd_wait(d);
	cr_expect_eq(access(d->socket, F_OK) | access(d->admin_socket, F_OK), 0);
}

/* Starts a gpuwmd there, which ends by itself. */
static void refuses_to_start(const struct gpuwmd *d, const char *socket)
{
	pid_t pid = start_bare(d, "--socket", socket);
	int status = 0;

	cr_assert(EVENTUALLY(SOON_MS, waitpid(pid, &status, WNOHANG) == pid), "it serves");
	cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%#x", status);
}

static unsigned times_logged(const struct gpuwmd *d, const char *words)
{
	char text[8192];
	ssize_t bytes;
	unsigned count = 0;
	int fd = open(d->log, O_RDONLY | O_CLOEXEC);

	bytes = read(fd, text, sizeof text - 1);
	close(fd);
	cr_assert(bytes >= 0);
	text[bytes] = '\0';
	for (const char *at = text; (at = strstr(at, words)); at++)
		count++;
	return count;
}

/* A start, --check-config and doctor have the same words. */
Test(configuration, places_of_sockets_are_judged_the_same_everywhere)
{
	char socket[160], set[192], says[256];
	struct gpuwmd d;

	ON_HOST();
	folder_make(&d);
	setenv("GPUWM_SOCKET", "", 1);
	snprintf(socket, sizeof socket, "%s/no/such/s", d.dir);
	snprintf(set, sizeof set, "socket.path=%s", socket);
	snprintf(says, sizeof says, "the socket's folder %s/no/such is not there, nor is the one above", d.dir);
	refuses_to_start(&d, socket);
	cr_expect_eq(times_logged(&d, says), 1);
	cr_expect_eq(check_config(&d, "", set), 1);
	cr_expect_eq(times_logged(&d, says), 2);
	cr_assert_eq(ctl(output, sizeof output, "--socket", socket, "doctor", NULL), 1);
	SAYS(says);
	snprintf(socket, sizeof socket, "%s/gpuwmd.conf", d.dir);
	snprintf(set, sizeof set, "socket.path=%s", socket);
	snprintf(says, sizeof says, "%s exists and is no socket", socket);
	refuses_to_start(&d, socket);
	cr_expect_eq(times_logged(&d, says), 1);
	cr_expect_eq(check_config(&d, "", set), 1);
	cr_expect_eq(times_logged(&d, says), 2);
	cr_assert_eq(ctl(output, sizeof output, "--socket", socket, "doctor", NULL), 1);
	SAYS(says);
}

#define STRANGE_GROUP "54321" /* nobody's here */

/* --check-config only warns, since another user may run gpuwmd, who may give it. */
Test(configuration, a_group_that_gpuwmd_may_not_give_a_socket_to)
{
	static const char text[] = "[socket]\nadmin_mode = 0660\nadmin_group = " STRANGE_GROUP "\n";
	char says[256];
	struct gpuwmd d;
	int status = 0;
	pid_t pid;

	ON_HOST();
	folder_make(&d);
	prctl(PR_CAPBSET_DROP, CAP_CHOWN); /* only root has it, and only root may drop it */
	snprintf(says, sizeof says,
		 "admin_group: uid %u may not give the socket %s to the group " STRANGE_GROUP,
		 (unsigned)geteuid(), d.admin_socket);
	cr_expect_eq(check_config(&d, text, NULL), 0, "a warning is no error");
	cr_expect_eq(times_logged(&d, "gpuwmd: warning: [socket] "), 1);
	cr_expect_eq(times_logged(&d, says), 1);
	pid = gpuwmd_spawn(&d, (const char *[]){"--config", config_write(&d, text), NULL});
	cr_assert(EVENTUALLY(SOON_MS, waitpid(pid, &status, WNOHANG) == pid), "it serves");
	cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%#x", status);
	cr_expect_eq(times_logged(&d, says), 2);
}

GPUWMD_TEST_IF(configuration, a_folder_of_sockets_into_which_others_can_write_is_warned_of, ON_HOST(),
	       gpuwmd_new(), gpuwmd_stop_empty)
{
	char says[256];

	snprintf(says, sizeof says, "the socket's folder %s can be written to by every user", d->dir);
	cr_assert_eq(chmod(d->dir, 0777), 0);
	d->pid = start_bare(d, "--root", d->root);
	gpuwmd_wait(d);
	cr_expect_eq(times_logged(d, says), 2, "of either socket");
	cr_expect_eq(check_config(d, "", NULL), 0, "a warning is no error");
	cr_expect_eq(times_logged(d, says), 4);
	CTL("doctor");
	SAYS(says);
	SAYS("chmod go-w");
}

/* ---- descriptions ---------------------------------------------------- */

/* A start serves without the folder, and says the same. */
Test(configuration, a_folder_of_descriptions_that_gpuwmd_would_not_use_is_warned_of)
{
	char folder[160], text[256], says[256];
	struct gpuwmd *d;

	ON_HOST();
	d = gpuwmd_new();
	snprintf(folder, sizeof folder, "%s/no/such", d->dir);
	snprintf(text, sizeof text, "[tiers]\nfolder = %s\n", folder);
	snprintf(says, sizeof says, "the folder %s for descriptions can't be made: No such file", folder);
	cr_expect_eq(check_config(d, text, NULL), 0, "a warning is no error");
	cr_expect_eq(times_logged(d, says), 1);
	snprintf(folder, sizeof folder, "%s/described", d->dir);
	snprintf(text, sizeof text, "[tiers]\nfolder = %s\n", folder);
	cr_expect_eq(check_config(d, text, NULL), 0);
	cr_expect_eq(times_logged(d, folder), 0, "a start makes it");
	cr_expect_neq(access(folder, F_OK), 0, "the check made it");
	cr_assert(mkdir(folder, 0700) == 0);
	cr_expect_eq(check_config(d, text, NULL), 0);
	cr_expect_eq(times_logged(d, folder), 0, "it can be used");
	cr_assert(chmod(folder, 0777) == 0);
	snprintf(says, sizeof says,
		 "the folder %s for descriptions can be written to by its group and every user", folder);
	cr_expect_eq(check_config(d, text, NULL), 0);
	cr_expect_eq(times_logged(d, says), 1);
	d->pid = gpuwmd_spawn(d, (const char *[]){"--config", config_write(d, text), NULL});
	gpuwmd_wait(d);
	cr_expect_eq(times_logged(d, says), 2);
	gpuwmd_stop_empty(d);
}

/* ---- roots ------------------------------------------------------------ */

Test(configuration, roots_that_are_not_there_are_warned_of)
{
	char gone[160], no_folder[160], there[160], text[160];
	struct gpuwmd *d;

	ON_HOST();
	d = gpuwmd_new();
	snprintf(gone, sizeof gone, "the root %s/gone can't be used: No such file or directory", d->dir);
	snprintf(no_folder, sizeof no_folder, "the root %s/gpuwmd.conf can't be used: Not a directory", d->dir);
	snprintf(there, sizeof there, "the root %s can't be used", d->root);
	snprintf(text, sizeof text, "%s/gone", d->dir);
	d->pid = gpuwmd_spawn(d, (const char *[]){"--root", text, NULL});
	gpuwmd_wait(d);
	cr_expect(EVENTUALLY(SOON_MS, log_says(d, gone)), "not at start");
	gpuwmd_stop_empty(d);
	snprintf(text, sizeof text, "loader.root=%s/gpuwmd.conf", d->dir);
	cr_expect_eq(check_config(d, "", text), 0, "a warning is no error");
	cr_expect(log_says(d, no_folder), "not by --check-config");
	cr_expect_not(log_says(d, there));
}

GPUWMD_TEST_IF(configuration, a_root_that_a_reload_adds_is_warned_of, ON_HOST(), gpuwmd_new(),
	       gpuwmd_stop_empty)
{
	char words[160], text[256];

	d->pid = start_bare(d, "--config", config_write(d, ""));
	gpuwmd_wait(d);
	snprintf(text, sizeof text, "[loader]\nroot = %s/gone\n", d->dir);
	config_write(d, text);
	OK(gpuwm_reload(d->admin));
	snprintf(words, sizeof words, "the root %s/gone can't be used", d->dir);
	cr_expect(EVENTUALLY(SOON_MS, log_says(d, words)));
}

/* Which of too many versions go is for the operator to say, also where a rule makes room for loads. */
GPUWMD_TEST_IF(configuration, a_budget_below_what_is_used_evicts_nothing_and_names_both, ON_HOST(),
	       gpuwmd_new(), gpuwmd_stop)
{
	static const char rules[] = "[model.1]\nmatch = *\nevict = files\n[tiers]\nmin_resident = 0\n";
	char text[512];
	const char *path;

	path = config_write(d, rules);
	d->pid = gpuwmd_spawn(d, (const char *[]){"--config", path, NULL});
	gpuwmd_wait(d);
	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	snprintf(text, sizeof text, "%s[budget]\nhost = 2M\n", rules);
	config_write(d, text);
	CTL_IS(0, "reload");
	FAILS(ENOSPC, load_try(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2"));
	cr_expect(strstr(gpuwm_error()->message, "0 B of the budget of 2.0 MiB left, with ") &&
			  strstr(gpuwm_error()->message, "MiB used"),
		  "%s", gpuwm_error()->message);
	cr_expect(strstr(gpuwm_error()->detail, "nothing is evicted"), "%s", gpuwm_error()->detail);
	cr_expect(lies_on(d, "v1", "device"));
}
