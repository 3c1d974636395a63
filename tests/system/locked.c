/* A gpuwmd that can't use its configuration keeps all that it inherited, and goes on with it once the file is mended. */
#include "kept.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
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
