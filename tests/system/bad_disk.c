/* Descriptions on a disk that fails: nothing that was described is lost or half written, and the next success heals. So it is with a file
 * system that hangs: gpuwmd waits for it with no request. */
#include "described.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

SYSTEM_SUITE(bad_disk);

static const struct {
	const char *call;
	int error;
	unsigned after; /* bytes */
} disk_faults[] = {
	{"pwrite", ENOSPC, 0},   {"pwrite", ENOSPC, 40}, {"pwrite", ENOSPC, 300}, {"pwrite", EDQUOT, 0},
	{"pwrite", EIO, 100},    {"pwrite", EFBIG, 64},  {"fsync", EIO, 0},       {"fsync", EDQUOT, 0},
	{"renameat", EDQUOT, 0}, {"renameat", EIO, 0},
};

static const char *fault_path(const struct gpuwmd *d)
{
	static char path[128];

	snprintf(path, sizeof path, "%s/fault", d->dir);
	return path;
}

static void fault_set(const struct gpuwmd *d, const char *call, int error, unsigned after)
{
	FILE *file = fopen(fault_path(d), "we");

	cr_assert(file);
	fprintf(file, "%s %d %u\n", call, error, after);
	fclose(file);
}

static struct gpuwmd *begin(void)
{
	struct gpuwmd *d = described_start(NULL);
	char folder[256];

	/* From the next start on. */
	snprintf(folder, sizeof folder, "%s/described", d->dir);
	setenv("BAD_DISK_FOLDER", folder, 1);
	setenv("BAD_DISK_FAULT", fault_path(d), 1);
	preload("bad-disk");
	describe_small(d, 1);
	described_reboot(d, SIGTERM);
	return d;
}

static void end(struct gpuwmd *d)
{
	preload(NULL);
	described_stop(d);
}

/* What a full or broken disk makes of a load and a pin: both are done, and everybody is told that they are not described. */
static void fails_and_heals(struct gpuwmd *d, size_t i)
{
	const char *checkpoint = checkpoint_write(d, "v2", SMALL(2));

	fault_set(d, disk_faults[i].call, disk_faults[i].error, disk_faults[i].after);
	load_version(d, checkpoint, "m@v2");
	OK(gpuwm_pin(d->admin, "m@v1", "night"));
	cr_assert(EVENTUALLY(SOON_MS, tiers_error(d, "descriptions can't be written into")), "%s",
		  disk_faults[i].call);
	cr_assert(tiers_error(d, strerror(disk_faults[i].error)));
	CTL_IS(0, "status");
	SAYS("NOT DESCRIBED");
	SAYS("described");
	attach_reads("m@v2", 2);
	/* With the disk as bad as before: what was described is there, and nothing of what was not. */
	described_reboot(d, SIGKILL);
	cr_assert(version_is(d, "m", "v1", "ready"), "%s", disk_faults[i].call);
	attach_reads("m@v1", 1);
	cr_assert_eq(unlink(fault_path(d)), 0);
	OK(gpuwm_reload(d->admin));
	load_version(d, checkpoint, "m@v3");
	OK(gpuwm_pin(d->admin, "m@v1", "day"));
	cr_assert(EVENTUALLY(SOON_MS, tiers_error(d, NULL) && is_described(d, "v3") && !tiers_pending(d)));
	described_reboot(d, SIGKILL);
	attach_reads("m@v1", 1);
	attach_reads("m@v3", 2);
	OK(gpuwm_unpin(d->admin, "m@v1", "day"));
	gpuwm_unpin(d->admin, "m@v1",
		    "night"); /* it is there where its description was written before the fault */
	DROP(d, "m@v3");
	gpuwm_retire_by_force(d->admin, "m@v2", 0, SOON_MS); /* the same */
	cr_assert(EVENTUALLY(SOON_MS, !tiers_pending(d)));
}

GPUWMD_TEST_IF(bad_disk, descriptions_survive_it_and_heal,
	       SKIP_UNLESS(!SANITIZED, "the sanitizer must be the first library"), begin(), end)
{
	for (size_t i = 0; i < sizeof disk_faults / sizeof disk_faults[0]; i++)
		fails_and_heals(d, i);
}

/* ---- a file system that hangs ------------------------------------------------- */

#define QUICK_MS 3000 /* longer than anything that gpuwmd waits for, and much shorter than its watchdog */

#define END_MS 12000 /* the unit has 15 s to stop */

/* call: the one that does; "": all of them. */
static void hangs_in(const struct gpuwmd *d, const char *call)
{
	FILE *file = fopen(fault_path(d), "we");

	cr_assert(file);
	fprintf(file, "stall %s\n", call);
	fclose(file);
}

static void hangs(const struct gpuwmd *d)
{
	hangs_in(d, "");
}

static void answers(struct gpuwmd *d)
{
	cr_assert_eq(unlink(fault_path(d)), 0);
	OK(gpuwm_reload(d->admin));
}

#define DISK_TEST(name)                                                                                        \
	GPUWMD_TEST_IF(bad_disk, name, SKIP_UNLESS(!SANITIZED, "the sanitizer must be the first library"),     \
		       begin(), end)

DISK_TEST(a_folder_that_hangs_holds_up_nobody_and_is_told)
{
	int64_t began;

	hangs(d);
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	cr_assert(EVENTUALLY(2 * SOON_MS, tiers_error(d, "has not answered for ")));
	began = clock_ms();
	CTL_IS(0, "status");
	SAYS("NOT DESCRIBED");
	SAYS("/described has not answered for ");
	OK(gpuwm_reload(d->admin));
	attach_reads("m@v2", 2);
	OK(gpuwm_pin(d->admin, "m@v2", "night"));
	cr_assert_lt(clock_ms() - began, QUICK_MS);
	cr_assert(!is_described(d, "v2"));
	answers(d);
	cr_assert(EVENTUALLY(SOON_MS, is_described(d, "v2") && tiers_error(d, NULL) && !tiers_pending(d)));
	described_reboot(d, SIGKILL);
	attach_reads("m@v1", 1);
	attach_reads("m@v2", 2);
}

DISK_TEST(a_folder_that_hangs_is_no_reason_to_hang_at_the_end)
{
	int64_t began;

	hangs(d);
	OK(gpuwm_pin(d->admin, "m@v1", "night"));
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	began = clock_ms();
	described_end(d, SIGTERM);
	cr_assert_lt(clock_ms() - began, END_MS);
	cr_assert_eq(log_lines(d, "descriptions are not written: the file system of "), 1);
	cr_assert_eq(unlink(fault_path(d)), 0);
	described_spawn(d);
	gpuwmd_wait(d);
	attach_reads("m@v1", 1);
}

DISK_TEST(a_folder_that_hangs_at_the_start_is_not_used)
{
	described_end(d, SIGTERM);
	hangs(d);
	described_spawn(d);
	gpuwmd_wait(d);
	cr_assert(tiers_error(d, "/described does not answer"));
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	attach_reads("m@v2", 2);
	cr_assert_eq(unlink(fault_path(d)), 0);
	described_reboot(d, SIGTERM);
	attach_reads("m@v1", 1);
}

/* The file system dies while gpuwmd opens the folder, before the names, or amid the versions. */
DISK_TEST(a_folder_that_hangs_within_a_start_is_given_up)
{
	static const char *const calls[] = {"openat", "pread", "pread 3", "close"};

	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	cr_assert(EVENTUALLY(SOON_MS, is_described(d, "v2") && !tiers_pending(d)));
	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
		described_end(d, SIGTERM);
		hangs_in(d, calls[i]);
		described_spawn(d);
		gpuwmd_wait(d);
		cr_assert(tiers_error(d, "/described does not answer"), "%s", calls[i]);
		load_version(d, checkpoint_write(d, "v3", SMALL(3)), "m@v3");
		attach_reads("m@v3", 3);
		gpuwm_retire_by_force(d->admin, "m@v3", 0, SOON_MS);
		cr_assert_eq(unlink(fault_path(d)), 0);
		described_reboot(d, SIGTERM);
		attach_reads("m@v1", 1);
		attach_reads("m@v2", 2);
	}
}

/* A reload looks whether the folder is still there. */
DISK_TEST(a_folder_that_hangs_within_a_reload_is_waited_for_later)
{
	static const char *const calls[] = {"fstat", "stat"};

	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
		const int64_t began = clock_ms();

		hangs_in(d, calls[i]);
		OK(gpuwm_reload(d->admin));
		cr_assert_lt(clock_ms() - began, QUICK_MS);
		cr_assert(tiers_error(d, "/described does not answer"), "%s", calls[i]);
		answers(d);
		/* Until the call has come back, the folder counts as one that hangs. */
		cr_assert(EVENTUALLY(SOON_MS, gpuwm_reload(d->admin) == 0 && tiers_error(d, NULL)));
	}
}

/* What the test mounts goes with its process. */
static void own_mounts(void)
{
	NEEDS_ROOT();
	SKIP_UNLESS(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0,
		    "this container gives no namespace for mounts");
}

/* FUSE without a program: nothing answers. */
static int mount_hanging(const char *path)
{
	int server = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char options[96];

	snprintf(options, sizeof(options), "fd=%d,rootmode=40700,user_id=0,group_id=0", server);
	if (server < 0 || mount("gpuwm-test", path, "fuse", MS_NOSUID | MS_NODEV, options) < 0)
		skip("this kernel has no FUSE");
	return server;
}

static void unmount(const char *path, int server)
{
	cr_assert_eq(umount2(path, MNT_DETACH), 0);
	close(server);
}

GPUWMD_TEST_IF(bad_disk, a_file_system_without_a_server_holds_up_neither_a_start_nor_a_reload, own_mounts(),
	       described_start(NULL), described_stop)
{
	char folder[160];
	int server;

	describe_small(d, 1);
	described_end(d, SIGTERM);
	snprintf(folder, sizeof folder, "%s/described", d->dir);
	server = mount_hanging(folder);
	described_spawn(d);
	gpuwmd_wait(d);
	cr_assert(tiers_error(d, "/described does not answer"));
	OK(gpuwm_reload(d->admin));
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	CTL_IS(1, "doctor");
	SAYS("/described does not answer");
	unmount(folder, server);
	described_reboot(d, SIGTERM);
	attach_reads("m@v1", 1);
}

/* gpuwmctl ends, wherever it waits, and what it leaves goes with the next save. */
GPUWMD_TEST_IF(bad_disk, a_save_does_not_wait_for_ever,
	       SKIP_UNLESS(!SANITIZED, "the sanitizer must be the first library"), gpuwmd_start(NULL),
	       gpuwmd_stop_empty)
{
	static const char *const calls[] = {"write", "fsync"};
	char folder[160];

	snprintf(folder, sizeof folder, "%s/saved", d->root);
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	setenv("BAD_DISK_FOLDER", folder, 1);
	setenv("BAD_DISK_FAULT", fault_path(d), 1);
	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
		hangs_in(d, calls[i]);
		preload("bad-disk");
		CTL_IS(7, "save", "m@v1", folder, "--stall", "1s");
		preload(NULL);
		SAYS("has not answered for 1.0 s");
	}
	cr_assert_eq(unlink(fault_path(d)), 0);
	CTL_IS(0, "save", "m@v1", folder);
	DROP(d, "m@v1");
	load_version(d, folder, "m@v2");
	worker_reads(d, "m@v2", 1);
	DROP(d, "m@v2");
}
