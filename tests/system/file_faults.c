/* Files that fail, change or hang while they are loaded. */
#include "fuse_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(file_faults);

#define FILE_BYTES MB(64)

static int load_by_hand(struct gpuwmd *d, const char *path)
{
	return CTL("load", path, "m@v1", "--device", d->device, "--wait");
}

/* Nothing of m@v1 can be had, all memory is back, and another load goes as ever. */
static void left_nothing(struct gpuwmd *d)
{
	cr_assert(version_is(d, "m", "v1", "failed"));
	cr_assert(EVENTUALLY(SOON_MS, memory_of(d) == 0 && status_of(d, "bytes") == 0));
	load_version(d, checkpoint_write(d, "good", SMALL(2)), "m@v1");
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

#define MOUNT(d, backing, fault, at, ret)                                                                      \
	SKIP_UNLESS(fuse_file_mount(d, backing, fault, at, ret),                                               \
		    "only root can mount a file system, and needs /dev/fuse and the right to mount")

GPUWMD_TEST_BY(file_faults, a_read_error_in_the_middle_is_named, gpuwmd_start(NULL), left_nothing)
{
	struct fuse_file file;

	MOUNT(d, checkpoint_write(d, "v1", LARGE(1)), FUSE_FAILS, FILE_BYTES / 2, &file);
	cr_assert_eq(load_by_hand(d, file.path), 1, "%s", output);
	SAYS(file.path);
	SAYS("Input/output error");
	fuse_file_end(&file);
}

GPUWMD_TEST(file_faults, an_unreadable_header_is_named)
{
	struct fuse_file file;

	MOUNT(d, checkpoint_write(d, "v1", LARGE(1)), FUSE_FAILS, 0, &file);
	cr_assert_eq(load_by_hand(d, file.path), 1, "%s", output);
	SAYS(file.path);
	SAYS("Input/output error");
	fuse_file_end(&file);
}

/* Starts a load of it, and waits until the server was asked for the byte. */
static struct ctl_run load_until_fault(struct gpuwmd *d, struct fuse_file *file)
{
	struct ctl_run run = ctl_start("load", file->path, "m@v1", "--device", d->device, "--wait", NULL);

	process_expect(&file->server, 'w');
	return run;
}

GPUWMD_TEST_BY(file_faults, a_file_that_is_truncated_while_it_loads, gpuwmd_start(NULL), left_nothing)
{
	char backing[256];
	struct fuse_file file;
	struct ctl_run run;

	snprintf(backing, sizeof backing, "%s", checkpoint_write(d, "v1", LARGE(1)));
	MOUNT(d, backing, FUSE_WAITS, FILE_BYTES / 2, &file);
	run = load_until_fault(d, &file);
	cr_assert(truncate(backing, (off_t)FILE_BYTES / 2) == 0);
	process_tell(&file.server, 'g');
	ctl_ends(&run, 1);
	SAYS(file.path);
	SAYS("while it was read");
	fuse_file_end(&file);
}

/* Same size, other bytes, some of them read before. */
GPUWMD_TEST_BY(file_faults, a_file_that_is_rewritten_while_it_loads, gpuwmd_start(NULL), left_nothing)
{
	char backing[256];
	struct fuse_file file;
	struct ctl_run run;

	snprintf(backing, sizeof backing, "%s", checkpoint_write(d, "v1", LARGE(1)));
	MOUNT(d, backing, FUSE_WAITS, FILE_BYTES / 2, &file);
	run = load_until_fault(d, &file);
	checkpoint_write(d, "v1", LARGE(2));
	process_tell(&file.server, 'g');
	ctl_ends(&run, 1);
	SAYS(file.path);
	SAYS("was written while it was read");
	fuse_file_end(&file);
}

/* So do programs that copy a file with its times. */
GPUWMD_TEST_BY(file_faults, a_file_that_is_rewritten_while_it_loads_and_gets_its_old_time_back,
	       gpuwmd_start(NULL), left_nothing)
{
	char backing[256];
	struct fuse_file file;
	struct ctl_run run;
	struct stat before, after;

	snprintf(backing, sizeof backing, "%s", checkpoint_write(d, "v1", LARGE(1)));
	MOUNT(d, backing, FUSE_WAITS, FILE_BYTES / 2, &file);
	run = load_until_fault(d, &file);
	cr_assert(stat(backing, &before) == 0);
	checkpoint_write(d, "v1", LARGE(2));
	cr_assert(utimensat(AT_FDCWD, backing, (struct timespec[2]){before.st_atim, before.st_mtim}, 0) == 0);
	cr_assert(stat(backing, &after) == 0 && after.st_size == before.st_size &&
		  after.st_mtim.tv_nsec == before.st_mtim.tv_nsec &&
		  after.st_mtim.tv_sec == before.st_mtim.tv_sec);
	process_tell(&file.server, 'g');
	ctl_ends(&run, 1);
	SAYS(file.path);
	SAYS("was written while it was read, or its times");
	fuse_file_end(&file);
}

/* ---- file systems that hang ------------------------------------------- */

static bool job_says(struct gpuwmd *d, const char *key, const char *text)
{
	json_t *answer = query(d->admin, "jobs", "1"),
	       *job = json_array_get(json_object_get(answer, "jobs"), 0);
	bool is = strcmp(json_string_value(json_object_get(job, key)), text) == 0;

	json_decref(answer);
	return is;
}

static void serves_others(struct gpuwmd *d)
{
	for (int i = 0; i < 50; i++) {
		int64_t begin = clock_ms();

		OK(gpuwm_ping(d->admin, NULL));
		cr_assert_lt(clock_ms() - begin, SOON_MS);
	}
	load_version(d, checkpoint_write(d, "other", SMALL(2)), "other@v1");
	DROP(d, "other@v1");
}

/* Its process hangs in the kernel until the server is gone, and what it may hold stays charged. */
static void server_ends(struct gpuwmd *d, struct fuse_file *file)
{
	fuse_file_end(file);
	cr_assert(EVENTUALLY(10000, memory_of(d) == 0 && status_of(d, "bytes") == 0));
	cr_assert(version_is(d, "m", "v1", "failed") || version_is(d, "m", "v1", "none"));
	gpuwmd_stop_empty(d);
}

Test(file_faults, a_file_system_that_hangs_holds_up_nobody_else_and_cancel_ends_it)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct fuse_file file;
	struct ctl_run run;

	MOUNT(d, checkpoint_write(d, "v1", LARGE(1)), FUSE_HANGS, FILE_BYTES / 2, &file);
	run = load_until_fault(d, &file);
	serves_others(d);
	cr_assert(EVENTUALLY(SOON_MS, job_says(d, "phase", "copying")));
	cr_assert(job_says(d, "state", "running"));
	OK(gpuwm_job_cancel(d->admin, 1));
	cr_assert(job_says(d, "state", "cancelled"), "the answer comes when it is so");
	FAILS(ENOENT, gpuwm_job_cancel(d->admin, 1));
	cr_assert_str_eq(gpuwm_error()->message, "job 1 is cancelled already");
	ctl_ends(&run, 1);
	SAYS("cancelled");
	serves_others(d);
	server_ends(d, &file);
}

Test(file_faults, a_header_that_hangs_is_cancelled)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct fuse_file file;
	struct ctl_run run;

	MOUNT(d, checkpoint_write(d, "v1", LARGE(1)), FUSE_HANGS, 0, &file);
	run = load_until_fault(d, &file);
	cr_assert(EVENTUALLY(SOON_MS, job_says(d, "phase", "opening")));
	OK(gpuwm_job_cancel(d->admin, 1));
	ctl_ends(&run, 1);
	serves_others(d);
	server_ends(d, &file);
}

Test(file_faults, a_load_without_progress_fails_after_its_limit)
{
	struct gpuwmd *d = gpuwmd_start("--set", "limits.load_stall_ms=3000", NULL);
	struct fuse_file file;
	struct ctl_run run;

	MOUNT(d, checkpoint_write(d, "v1", LARGE(1)), FUSE_HANGS, FILE_BYTES / 2, &file);
	run = load_until_fault(d, &file);
	ctl_ends(&run, 7);
	SAYS("the load hangs: no progress for 3000 ms while copying");
	SAYS("load_stall_ms in [limits]");
	serves_others(d);
	server_ends(d, &file);
}
