/* A tmpfs that is full, beneath descriptions, saves and logs. tests/system/bad_disk.c has what fails at each call. */
#include "described.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(full_disk);

/* What the test mounts goes with its process. */
static void own_mounts(void)
{
	NEEDS_ROOT();
	SKIP_UNLESS(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0,
		    "this container gives no namespace for mounts");
}

/* Mounts a tmpfs of that size, and fills it but for so many bytes. */
static void mount_full(const char *path, const char *size, off_t left)
{
	char options[64], filler[256];
	ssize_t wrote = 1;
	struct stat st;
	int fd;

	snprintf(options, sizeof options, "size=%s,mode=0700", size);
	mkdir(path, 0700);
	if (mount("gpuwm-test", path, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
		skip("this container may not mount a tmpfs");
	snprintf(filler, sizeof filler, "%s/.filler", path);
	fd = open(filler, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	cr_assert_geq(fd, 0);
	while (wrote > 0)
		wrote = write(fd, filler, sizeof filler);
	cr_assert(fstat(fd, &st) == 0 && ftruncate(fd, st.st_size > left ? st.st_size - left : 0) == 0);
	close(fd);
}

static void make_room(const char *path)
{
	char filler[256];

	snprintf(filler, sizeof filler, "%s/.filler", path);
	cr_assert_eq(unlink(filler), 0);
}

static unsigned count_names(const char *path)
{
	DIR *folder = opendir(path);
	unsigned count = 0;

	cr_assert(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count - 2;
}

GPUWMD_TEST_IF(full_disk, descriptions_wait_for_room, own_mounts(), described_start(NULL), described_stop)
{
	char folder[160];

	snprintf(folder, sizeof folder, "%s/described", d->dir);
	described_end(d, SIGTERM);
	mount_full(folder, "256k", 0);
	described_spawn(d);
	gpuwmd_wait(d);
	load_small(d, 2);
	cr_assert(EVENTUALLY(SOON_MS, tiers_error(d, "No space left on device")));
	worker_reads(d, "m@v1", 1);
	cr_assert_eq(tiers_number(d, "described"), 0);
	make_room(folder);
	OK(gpuwm_reload(d->admin));
	cr_assert(EVENTUALLY(SOON_MS, tiers_number(d, "described") == 2 && tiers_error(d, NULL)));
	described_reboot(d, SIGKILL);
	attach_reads("m@v1", 1);
	attach_reads("m@v2", 2);
	DROP(d, "m@v1", "m@v2");
	described_end(d, SIGTERM);
	cr_assert_eq(umount2(folder, MNT_DETACH), 0);
	described_spawn(d);
	gpuwmd_wait(d);
}

GPUWMD_TEST_IF(full_disk, a_save_leaves_nothing_where_there_is_no_room, own_mounts(), gpuwmd_start(NULL),
	       gpuwmd_stop_empty)
{
	static const off_t rooms[] = {0, 4096, 65536};
	char folder[160];

	snprintf(folder, sizeof folder, "%s/full", d->root);
	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
		mount_full(folder, "1m", rooms[i]);
		cr_assert_neq(CTL("save", "m@v1", folder), 0);
		SAYS("No space left on device");
		SAYS("what was written is removed");
		cr_assert_eq(count_names(folder), 1, "files are left");
		cr_assert_eq(umount2(folder, MNT_DETACH), 0);
	}
	mount_full(folder, "128m", 0);
	make_room(folder);
	CTL_IS(0, "save", "m@v1", folder);
	DROP(d, "m@v1");
	load_version(d, folder, "m@v2");
	worker_reads(d, "m@v2", 1);
	DROP(d, "m@v2");
	cr_assert_eq(umount2(folder, MNT_DETACH), 0);
	cr_assert_eq(rmdir(folder), 0);
}

/* gpuwmd, and the loaders that it starts. */
Test(full_disk, a_log_without_room_stops_nobody)
{
	struct gpuwmd *d;
	char folder[80];

	own_mounts();
	d = gpuwmd_new();
	snprintf(folder, sizeof folder, "%s/logs", d->dir);
	mount_full(folder, "64k", 0);
	snprintf(d->log, sizeof d->log, "%s/log", folder);
	d->pid = gpuwmd_spawn(d, (const char *[]){NULL});
	gpuwmd_wait(d);
	load_small(d, 2);
	worker_reads(d, "m@v1", 1);
	make_room(folder);
	load_version(d, checkpoint_write(d, "v3", SMALL(3)), "m@v3");
	cr_assert_geq(
		log_lines(d,
			  "the log could not be written (No space left on device): lines that are not there: "),
		1);
	DROP(d, "m@v1", "m@v2", "m@v3");
	gpuwmd_stop_empty(d);
	cr_assert_eq(umount2(folder, MNT_DETACH), 0);
}
