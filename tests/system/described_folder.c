/* The folder of descriptions: whose it is, who may write to it, and what a reload makes of it. */
#include "described.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER_TEST(name) GPUWMD_TEST_BY(descriptions, name, described_start(NULL), described_stop)

/* Runs the command that the status names as the remedy, which has these words and the folder. */
static void remedy_run(struct gpuwmd *d, const char *words)
{
	char command[512], folder[256];

	snprintf(folder, sizeof(folder), "%s", described_path(d, ""));
	folder[strlen(folder) - 1] = '\0';
	snprintf(command, sizeof(command), "%s'%s'", words, folder);
	CTL_IS(0, "status");
	SAYS(command);
	cr_assert_eq(system(command), 0);
}

FOLDER_TEST(a_folder_of_another_user_is_not_used_until_a_reload_finds_it_right)
{
	char path[256], says[96], command[64];

	SKIP_UNLESS(geteuid() == 0, "only root can give a folder away");
	snprintf(path, sizeof path, "%s", described_path(d, ""));
	described_end(d, SIGTERM);
	cr_assert_eq(chown(path, 12345, (gid_t)-1), 0);
	described_spawn(d);
	gpuwmd_wait(d);
	snprintf(says, sizeof(says), "for descriptions belongs to user 12345, and gpuwmd runs as user %u",
		 geteuid());
	cr_assert(tiers_error(d, says));
	snprintf(command, sizeof(command), "chown %u ", geteuid());
	remedy_run(d, command);
	OK(gpuwm_reload(d->admin));
	cr_assert(tiers_error(d, NULL));
}

FOLDER_TEST(a_folder_that_others_can_write_to_is_not_used_until_a_reload_finds_it_right)
{
	char path[256];

	snprintf(path, sizeof path, "%s", described_path(d, ""));
	described_end(d, SIGTERM);
	cr_assert_eq(chmod(path, 0777), 0);
	described_spawn(d);
	gpuwmd_wait(d);
	cr_assert(tiers_error(
		d, "for descriptions can be written to by its group and every user: its mode is 0777"));
	load_small(d, 1);
	cr_assert_eq(tiers_number(d, "described"), 0);
	remedy_run(d, "chmod go-w ");
	OK(gpuwm_reload(d->admin));
	cr_assert(EVENTUALLY(SOON_MS, tiers_number(d, "described") == 1));
	cr_assert(tiers_error(d, NULL));
}

/* What the next start would refuse, status, reload and doctor refuse before. */
FOLDER_TEST(a_folder_that_others_can_write_to_is_told_before_the_next_start)
{
	char path[256];

	snprintf(path, sizeof path, "%s", described_path(d, ""));
	load_small(d, 1);
	cr_assert(EVENTUALLY(SOON_MS, tiers_number(d, "described") == 1));
	cr_assert(tiers_error(d, NULL));
	cr_assert_eq(chmod(path, 0777), 0);
	cr_assert(tiers_error(d, "its mode is 0777"));
	CTL_IS(0, "status");
	SAYS("NOT DESCRIBED: the folder ");
	CTL_IS(0, "reload");
	SAYS("NOT DESCRIBED: the folder ");
	CTL_IS(1, "doctor");
	SAYS("can be written to by its group and every user: its mode is 0777");
	remedy_run(d, "chmod go-w ");
	CTL_IS(0, "reload");
	cr_assert_null(strstr(output, "NOT DESCRIBED"));
	cr_assert(tiers_error(d, NULL));
}

FOLDER_TEST(a_folder_that_a_reload_finds_with_other_versions_waits_for_a_restart)
{
	char path[256];

	load_small(d, 1);
	cr_assert(EVENTUALLY(SOON_MS, is_described(d, "v1")));
	snprintf(path, sizeof path, "%s", described_path(d, ""));
	described_end(d, SIGTERM);
	cr_assert_eq(chmod(path, 0777), 0);
	described_spawn(d);
	gpuwmd_wait(d);
	cr_assert_eq(chmod(path, 0700), 0);
	OK(gpuwm_reload(d->admin));
	cr_assert(EVENTUALLY(SOON_MS, tiers_error(d, "gpuwmd does not hold 1 of their versions")));
	CTL_IS(0, "status");
	SAYS("(restart gpuwmd, which brings these versions back; or set another folder in [tiers])");
	described_reboot(d, SIGTERM);
	cr_assert(version_is(d, "m", "v1", "ready"));
}

/* gpuwmd has it open still. */
static void folder_remove(struct gpuwmd *d)
{
	char path[256];

	snprintf(path, sizeof path, "%s", described_file(d, "v1"));
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(unlink(described_path(d, "names")), 0);
	cr_assert_eq(unlink(described_path(d, "lock")), 0);
	snprintf(path, sizeof path, "%s", described_path(d, ""));
	cr_assert_eq(rmdir(path), 0);
}

FOLDER_TEST(a_folder_that_was_removed_is_made_anew_by_a_reload)
{
	describe_small(d, 1);
	folder_remove(d);
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	cr_assert(EVENTUALLY(SOON_MS, tiers_error(d, "descriptions can't be written into")));
	OK(gpuwm_reload(d->admin));
	cr_assert(EVENTUALLY(SOON_MS, is_described(d, "v1") && is_described(d, "v2") && tiers_error(d, NULL)));
	described_reboot(d, SIGKILL);
	cr_assert_eq(tiers_number(d, "found"), 2);
}

FOLDER_TEST(a_folder_that_was_removed_and_is_not_missed_is_made_anew_by_a_reload)
{
	describe_small(d, 1);
	folder_remove(d);
	OK(gpuwm_reload(d->admin));
	cr_assert(EVENTUALLY(SOON_MS, access(described_path(d, "names"), F_OK) == 0));
	described_reboot(d, SIGKILL);
	cr_assert_eq(tiers_number(d, "found"), 1);
}

FOLDER_TEST(one_gpuwmd_uses_a_folder)
{
	struct gpuwmd *other;
	char flag[256];

	snprintf(flag, sizeof flag, "tiers.folder=%s", described_path(d, ""));
	describe_small(d, 1);
	other = gpuwmd_start("--set", flag, NULL);
	cr_assert(tiers_error(other, "is in use by another gpuwmd"));
	cr_assert_eq(tiers_number(other, "found"), 0);
	gpuwmd_stop(other);
	setenv("GPUWM_SOCKET", d->socket, 1);
	cr_assert(is_described(d, "v1"));
}

/* A gpuwmd that was killed lets go of its socket before its last file. */
FOLDER_TEST(a_start_waits_until_the_last_gpuwmd_has_let_go_of_the_folder)
{
	const struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int lock;

	describe_small(d, 1);
	described_end(d, SIGKILL);
	lock = open(described_path(d, "lock"), O_RDWR | O_CLOEXEC);
	cr_assert_eq(fcntl(lock, F_SETLK, &whole), 0);
	described_spawn(d);
	cr_assert(EVENTUALLY(SOON_MS, log_says(d, "gpuwmd waits for its end, at most 5 seconds")));
	close(lock);
	gpuwmd_wait(d);
	cr_assert_eq(tiers_number(d, "found"), 1);
	cr_assert(tiers_error(d, NULL));
}

FOLDER_TEST(where_nothing_can_be_written_gpuwmd_serves_and_says_so)
{
	struct rlimit limit = {100, RLIM_INFINITY};

	describe_small(d, 1);
	cr_assert_eq(prlimit(d->pid, RLIMIT_FSIZE, &limit, NULL), 0);
	OK(gpuwm_pin(d->admin, "m@v1", "night"));
	cr_assert(EVENTUALLY(SOON_MS, tiers_error(d, "descriptions can't be written into")));
	attach_reads("m", 1);
	limit.rlim_cur = RLIM_INFINITY;
	cr_assert_eq(prlimit(d->pid, RLIMIT_FSIZE, &limit, NULL), 0);
	OK(gpuwm_reload(d->admin));
	cr_assert(EVENTUALLY(SOON_MS, tiers_error(d, NULL)));
	cr_assert(log_says(d, "versions are described in"));
}
