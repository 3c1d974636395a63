/* A gpuwmd that can't use its configuration keeps all that it inherited, and goes on with it once the file is mended. */
#include "kept.h"

#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

SYSTEM_SUITE(locked);

#define FILES_HARD 32768 /* the unit's soft limit; less than 262,144 sessions need */
#define WRONG "bogus line without equals\n"
static const struct kept how = {.limits = LIMITS_LONG, .acts = true};

static void conf_append(const struct gpuwmd *d, const char *text)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof path, "%s/gpuwmd.conf", d->dir);
	file = fopen(path, "ae");
	cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* Its configuration is wrong from the next start on. */
static struct gpuwmd *with_wrong_file(void)
{
	struct gpuwmd *d = with_two_versions(gpuwmd_start_kept(&how));

	conf_append(d, WRONG);
	return d;
}

static void mend(struct gpuwmd *d)
{
	kept_configure(d, &how);
	CTL_IS(0, "reload");
	kept_wait(d);
}

static void drop_all(struct gpuwmd *d)
{
	DROP(d, "m@v1", "m@v2");
	gpuwmd_stop_empty(d);
}

/* ---- what this machine refuses ---------------------------------------- */

#define STRANGE_GROUP 54321 /* nobody's here */
#define BY_FILE "by-file\n" /* the file says where gpuwmd serves */

/* Writes a file that says where gpuwmd serves: `name` below its folder. */
static void serve_at(const struct gpuwmd *d, const char *name)
{
	char text[256];

	kept_configure(d, &how);
	snprintf(text, sizeof text, "[socket]\npath = %s/%s\nadmin_path = %s\n", d->dir, name, d->admin_socket);
	conf_append(d, text);
}

/* Neither a reload nor a restart takes the file that is there; then one that serves at the old place unlocks gpuwmd. */
static void locks_and_unlocks(struct gpuwmd *d, const char *says)
{
	pid_t pid;

	kept_act(d, BY_FILE);
	kept_kill(d, SIGKILL);
	CTL_IS(1, "ping");
	SAYS(says);
	SAYS("gpuwmctl reload");
	CTL_IS(1, "reload");
	SAYS(says);
	pid = d->pid;
	serve_at(d, "gpuwm.sock");
	CTL_IS(0, "reload");
	kept_wait(d);
	cr_assert_eq(d->pid, pid);
	worker_reads(d, "m", 1);
}

/* It tells file and line, and answers nothing that would touch what it keeps. */
static void is_locked(struct gpuwmd *d, size_t kept)
{
	static const char *const refused[] = {"list", "get_handles", "resume", "load", "subscribe", "drain"};
	json_t *status = query(d->admin, "status", NULL), *locked = json_object_get(status, "locked");
	int sock = raw_client(d->admin_socket);

	cr_assert_str_eq(json_string_value(json_object_get(locked, "code")), "EUCLEAN");
	cr_assert(strstr(json_string_value(json_object_get(locked, "message")), "gpuwmd.conf:5: "), "%s",
		  json_string_value(json_object_get(locked, "message")));
	cr_assert(strstr(json_string_value(json_object_get(locked, "detail")), "gpuwmctl reload"));
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
		cr_assert_eq(raw_call(sock, refused[i]), -EUCLEAN, "%s", refused[i]);
	cr_assert_eq(fds_of(d->keeper), kept, "the store was touched");
	close(sock);
	json_decref(status);
}

GPUWMD_TEST_BY(locked, a_wrong_file_keeps_everything_until_a_reload, with_wrong_file(), drop_all)
{
	struct process worker = worker_start(d, "m", 1);
	size_t kept = fds_of(d->keeper);
	uint64_t memory = kept_memory(d);
	char *before = kept_registry(d), *after;
	pid_t pid;

	kept_kill(d, SIGKILL);
	is_locked(d, kept);
	kept_kill(d, SIGTERM);
	is_locked(d, kept);
	cr_assert_eq(kept_memory(d), memory);
	pid = d->pid;
	mend(d);
	cr_assert_eq(d->pid, pid, "it begins anew in the same process");
	after = kept_registry(d);
	cr_assert_str_eq(after, before);
	process_tell(&worker, 'd');
	process_finish(&worker);
	worker_reads(d, "m", 1);
	free(before);
	free(after);
}

GPUWMD_TEST_BY(locked, gpuwmctl_says_file_line_and_remedy, with_wrong_file(), drop_all)
{
	CTL_IS(1, "reload");
	SAYS("the old configuration stays: ");
	SAYS("gpuwmd.conf:5: this is neither [section] nor key = value");
	SAYS("correct the line, or begin it with ; as a comment");
	kept_kill(d, SIGKILL);
	CTL_IS(1, "ping");
	SAYS("gpuwmd.conf:5: this is neither [section] nor key = value");
	SAYS("gpuwmctl reload");
	CTL_IS(0, "status");
	SAYS("LOCKED: ");
	CTL_IS(1, "ls");
	SAYS("gpuwmd.conf:5: ");
	CTL_IS(1, "doctor");
	SAYS("gpuwmd is locked: it can't use its configuration");
	conf_append(d, "[limits]\nsessions = none\n");
	CTL_IS(1, "reload");
	SAYS("gpuwmd.conf:5: ");
	kept_configure(d, &how);
	conf_append(d, "[limits]\nsessions = none\n");
	CTL_IS(1, "reload");
	SAYS("gpuwmd.conf:6: [limits] sessions = none");
	CTL_IS(1, "ping");
	SAYS("gpuwmd.conf:6: ");
	mend(d);
	CTL_IS(0, "ping");
}

GPUWMD_TEST_BY(locked, sighup_unlocks_too, with_wrong_file(), drop_all)
{
	kept_kill(d, SIGKILL);
	kept_configure(d, &how);
	cr_assert_eq(kill(d->pid, SIGHUP), 0);
	kept_wait(d);
	worker_reads(d, "m", 1);
}

/* Nobody but root and its own user reaches one whose sockets are gone too. */
GPUWMD_TEST_BY(locked, without_its_sockets_it_makes_that_of_operators, with_wrong_file(), drop_all)
{
	struct stat st;

	unlink(d->socket);
	kept_act(d, "drop own-worker\ndrop own-admin\n");
	kept_kill(d, SIGKILL);
	cr_assert(stat(d->admin_socket, &st) == 0 && (st.st_mode & 07777) == 0600);
	cr_assert_eq(access(d->socket, F_OK), -1);
	mend(d);
	worker_reads(d, "m", 1);
}

GPUWMD_TEST_BY(locked, limits_above_the_open_files_lock_it_too, with_two_versions(gpuwmd_start_kept(&how)),
	       drop_all)
{
	struct rlimit files;

	conf_append(d, "[limits]\nsessions = 262144\n");
	cr_assert_eq(prlimit(d->keeper, RLIMIT_NOFILE, NULL, &files), 0);
	if (files.rlim_max > FILES_HARD)
		files.rlim_cur = files.rlim_max = FILES_HARD;
	cr_assert_eq(prlimit(d->keeper, RLIMIT_NOFILE, &files, NULL), 0);
	kept_kill(d, SIGKILL);
	CTL_IS(1, "ping");
	SAYS("262144 sessions need up to ");
	mend(d);
}

/* A start would refuse it, and so a reload does. */
GPUWMD_TEST_BY(locked, a_group_that_is_not_there_locks_it_too, with_two_versions(gpuwmd_start_kept(&how)),
	       drop_all)
{
	static const char says[] = "[socket] group: there is no group \"no-such-group\" here";

	conf_append(d, "[socket]\ngroup = no-such-group\n");
	CTL_IS(1, "reload");
	SAYS(says);
	SAYS("the old configuration stays: ");
	worker_reads(d, "m", 1);
	kept_kill(d, SIGKILL);
	CTL_IS(1, "ping");
	SAYS(says);
	CTL_IS(1, "doctor");
	SAYS(says);
	CTL_IS(1, "reload");
	SAYS(says);
	mend(d);
	worker_reads(d, "m", 1);
}

static void is_refused_at_reload(struct gpuwmd *d, const char *says)
{
	CTL_IS(1, "reload");
	SAYS(says);
	SAYS("the old configuration stays: ");
	cr_expect(!strstr(output, "restart gpuwmd for that"), "a restart would lock it: %s", output);
	worker_reads(d, "m", 1);
}

GPUWMD_TEST_BY(locked, a_folder_of_sockets_that_is_not_there_locks_it_too,
	       with_two_versions(gpuwmd_start_kept(&how)), drop_all)
{
	char says[256];

	snprintf(says, sizeof says, "[socket] path: the socket's folder %s/no/such is not there", d->dir);
	serve_at(d, "gpuwm.sock");
	kept_act(d, BY_FILE);
	kept_kill(d, SIGKILL);
	serve_at(d, "no/such/s");
	is_refused_at_reload(d, says);
	locks_and_unlocks(d, says);
	serve_at(d, "moved.sock");
	CTL_IS(1, "reload");
	SAYS("restart gpuwmd for that");
	serve_at(d, "gpuwm.sock");
	CTL_IS(0, "reload");
}

/* As an ordinary user, who is not a member of the group. */
static struct gpuwmd *without_rights(void)
{
	prctl(PR_CAPBSET_DROP, CAP_CHOWN); /* only root has it, and only root may drop it */
	return with_two_versions(gpuwmd_start_kept(&how));
}

GPUWMD_TEST_BY(locked, a_group_that_it_may_not_give_a_socket_to_locks_it_too, without_rights(), drop_all)
{
	char text[64], says[256];

	snprintf(text, sizeof text, "group = %d\n", STRANGE_GROUP);
	snprintf(says, sizeof says,
		 "[socket] group: uid %u may not give the socket %s to the group %d: ", (unsigned)geteuid(),
		 d->socket, STRANGE_GROUP);
	serve_at(d, "gpuwm.sock");
	conf_append(d, text); /* to [socket] */
	is_refused_at_reload(d, says);
	locks_and_unlocks(d, says);
}

/* This shows only when gpuwmd makes its sockets. */
GPUWMD_TEST_BY(locked, a_path_where_another_program_listens_locks_it_too,
	       with_two_versions(gpuwmd_start_kept(&how)), drop_all)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t kept = fds_of(d->keeper);

	snprintf(address.sun_path, sizeof address.sun_path, "%s/other", d->dir);
	cr_assert(bind(sock, (struct sockaddr *)&address, sizeof address) == 0 && listen(sock, 1) == 0);
	serve_at(d, "other");
	kept_act(d, BY_FILE);
	kept_kill(d, SIGKILL);
	cr_assert_eq(fds_of(d->keeper), kept, "the store was touched");
	CTL_IS(1, "ping");
	SAYS("/other is the socket of another program");
	serve_at(d, "gpuwm.sock");
	CTL_IS(0, "reload");
	kept_wait(d);
	worker_reads(d, "m", 1);
	close(sock);
}

/* Nobody can connect to it, but nothing is lost. */
GPUWMD_TEST_BY(locked, without_any_place_for_a_socket_sighup_unlocks_it,
	       with_two_versions(gpuwmd_start_kept(&how)), drop_all)
{
	const size_t served = log_count(d, "gpuwmd: info: limits: ");
	const size_t started = log_count(d, " is started (process ");
	char text[256];
	pid_t before = d->pid;

	kept_configure(d, &how);
	snprintf(text, sizeof text, "[socket]\npath = %s/no/such/s\n", d->dir);
	conf_append(d, text);
	kept_act(d, BY_FILE "drop own-worker\ndrop own-admin\n");
	cr_assert(kill(before, SIGKILL) == 0);
	cr_assert(EVENTUALLY(SOON_MS, log_count(d, "gpuwmd: info: limits: ") > served), "it does not run");
	cr_assert(log_says(d, "gpuwmd has no socket for operators, since it can't make one"));
	serve_at(d, "gpuwm.sock");
	cr_assert(kill(kept_pid(d), SIGHUP) == 0);
	kept_wait(d);
	cr_assert_eq(log_count(d, " is started (process "), started + 1, "it ended");
	worker_reads(d, "m", 1);
}

GPUWMD_TEST_BY(locked, a_size_of_the_store_that_is_no_number_locks_it_too,
	       with_two_versions(gpuwmd_start_kept(&how)), drop_all)
{
	kept_act(d, "env FDSTORE=many\n");
	kept_kill(d, SIGKILL);
	CTL_IS(1, "ping");
	SAYS("FDSTORE=\"many\" is no number of descriptors");
	CTL_IS(1, "reload");
	SAYS("FDSTORE=\"many\" is no number of descriptors");
	kept_kill(d, SIGKILL);
	worker_reads(d, "m", 1);
}

/* Each would wait for the end of whoever has the other one's socket, which is the keeper. */
GPUWMD_TEST_BY(locked, sockets_that_change_places_lock_it_too, with_two_versions(gpuwmd_start_kept(&how)),
	       drop_all)
{
	char text[256], says[256];

	serve_at(d, "gpuwm.sock");
	kept_act(d, BY_FILE);
	kept_kill(d, SIGKILL);
	kept_configure(d, &how);
	snprintf(text, sizeof text, "[socket]\npath = %s\nadmin_path = %s\n", d->admin_socket, d->socket);
	conf_append(d, text);
	snprintf(says, sizeof says, "[socket] path: gpuwmd's other socket is at %s", d->admin_socket);
	is_refused_at_reload(d, says);
	locks_and_unlocks(d, says);
}
