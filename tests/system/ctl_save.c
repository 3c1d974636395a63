/* gpuwmctl save: a version as files, which anybody can load, and from which the version itself comes back. */
#include "tiers.h"
#include "base/leftover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(ctl_save);

static const char *path_in(struct gpuwmd *d, const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", d->root, name);
	return path;
}

static const char *tier_of(struct gpuwmd *d)
{
	static char tier[16];
	json_t *version = version_entry(d, "m", "v1");
	const char *text = json_string_value(json_object_get(version, "tier"));

	snprintf(tier, sizeof(tier), "%s", text ? text : "device");
	json_decref(version);
	return tier;
}

static void wait_all(struct gpuwmd *d, const uint64_t *jobs, size_t count)
{
	for (size_t i = 0; i < count; i++)
		OK(gpuwm_job_wait(d->admin, jobs[i], 30000));
}

/* To files, where nothing of it is left in memory. */
static void demote_to_files(struct gpuwmd *d)
{
	uint64_t jobs[GPUWM_MOVE_JOBS_MAX];
	size_t count;

	OK(gpuwm_demote(d->admin, "m@v1", "files", jobs, &count));
	wait_all(d, jobs, count);
	cr_assert_str_eq(tier_of(d), "files");
}

/* ---- a version of every kind of tensor -------------------------------------- */

static const uint64_t sizes[] = {64, 96, 0};
static const int64_t turned[] = {1, 64}, plain[] = {96, 1};

/* Strides, a tie, an empty one, elements of less than a byte; and files, of which one can't be written. */
static void publish_part(struct gpuwmd *d, struct gpuwm_client *client, uint32_t rank, uint32_t world,
			 const char *join, struct gpuwm_publish **ret)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	const struct gpuwm_tensor_spec specs[] = {
		{.name = "turned", .dtype = GPUWM_I16, .ndim = 2, .shape = sizes, .strides = turned},
		{.name = "plain", .dtype = GPUWM_I16, .ndim = 2, .shape = sizes, .strides = plain},
		{.name = "head", .dtype = GPUWM_I16, .ndim = 2, .shape = sizes, .tied_to = "plain"},
		{.name = "empty", .dtype = GPUWM_F32, .ndim = 1, .shape = &sizes[2]},
		{.name = "small", .dtype = GPUWM_F4, .ndim = 1, .shape = sizes},
	};
	uint8_t data[64 * 96 * 2];

	options.name = "m@v1";
	options.device = d->device;
	options.rank = rank;
	options.world = world;
	options.join = join;
	OK(gpuwm_publish_begin(client, &options, specs, 5, ret));
	content_fill(rank, "turned", 0, data, sizeof(data));
	OK(gpuwm_publish_write(*ret, 0, 0, data, sizeof(data)));
	content_fill(rank, "plain", 0, data, sizeof(data));
	OK(gpuwm_publish_write(*ret, 1, 0, data, sizeof(data)));
	OK(gpuwm_publish_write(*ret, 4, 0, data, 32));
	OK(gpuwm_publish_file(*ret, "config.json", "{}", 2));
	OK(gpuwm_publish_file(*ret, "../up", "no", 2));
}

static void publish_ranks(struct gpuwmd *d, uint32_t world)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_publish *publishes[2];

	for (uint32_t i = 0; i < world; i++)
		publish_part(d, client, i, world, i ? gpuwm_publish_id(publishes[0]) : NULL, &publishes[i]);
	for (uint32_t i = 0; i < world; i++)
		OK(gpuwm_publish_commit(publishes[i], NULL));
	gpuwm_close(client);
}

static void expect_whole(uint32_t rank)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor tensor;

	options.rank = rank;
	options.wait_ms = 30000;
	OK(gpuwm_attach(client, "m@v1", &options, &mapping));
	OK(gpuwm_tensors_verify(mapping, NULL, 0));
	OK(gpuwm_tensor_find(mapping, "turned", &tensor));
	cr_assert(tensor_holds(mapping, &tensor, rank));
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
}

static void round_trip(struct gpuwmd *d, uint32_t world)
{
	publish_ranks(d, world);
	CTL_IS(0, "save", "m@v1", path_in(d, "out"));
	SAYS("m@v1 is saved in ");
	SAYS("; these files describe it now\n");
	SAYS("the small file \"../up\" is left out");
	demote_to_files(d);
	for (uint32_t i = 0; i < world; i++)
		expect_whole(i);
	cr_assert_str_eq(tier_of(d), "device");
	CTL_IS(0, "verify", "m@v1", "--wait");
	SAYS("intact");
	DROP(d, "m@v1");
}

GPUWMD_TEST(ctl_save, a_published_version_comes_back_from_its_files)
{
	round_trip(d, 1);
}

GPUWMD_TEST(ctl_save, several_ranks_come_back_from_their_files)
{
	round_trip(d, 2);
	cr_assert_eq(access(path_in(d, "out/model-rank-1-part-0.safetensors"), F_OK), 0);
}

GPUWMD_TEST(ctl_save, anybody_can_load_what_was_saved)
{
	OK(publish_version(d->admin, d->device, "m@v1", SMALL(1)));
	CTL_IS(0, "save", "m@v1", path_in(d, "out"), "--no-describe");
	cr_assert(!strstr(output, "describe"));
	load_version(d, path_in(d, "out"), "m@v2");
	worker_reads(d, "m@v2", 1);
	DROP(d, "m@v1", "m@v2");
}

/* ---- what it refuses --------------------------------------------------------- */

/* A file system whose server never answers: FUSE without a program. */
GPUWMD_TEST(ctl_save, a_file_system_that_hangs_is_told_and_ends_it)
{
	const char *path = strdup(path_in(d, "hangs"));
	char options[96];
	int server;

	if (geteuid() != 0)
		cr_skip("only root can mount a file system that hangs");
	server = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", server);
	if (server < 0 || mkdir(path, 0700) < 0 ||
	    mount("gpuwm-test", path, "fuse", MS_NOSUID | MS_NODEV, options) < 0)
		cr_skip("this kernel has no FUSE");
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	CTL_IS(7, "save", "m@v1", path, "--stall", "1s");
	SAYS("the file system of ");
	SAYS("has not answered for 1.0 s");
	SAYS("does its server run?");
	cr_assert_eq(umount2(path, MNT_DETACH), 0);
	close(server);
	rmdir(path);
	free((char *)path);
	DROP(d, "m@v1");
}

/* A killed one leaves files with temporary names. */
GPUWMD_TEST(ctl_save, the_next_one_removes_what_a_killed_one_left)
{
	const char *folder = strdup(path_in(d, "out"));
	char maker[LEFTOVER_MAKER_BYTES], left[300], foreign[300];
	int ends[2];

	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	if (fork() == 0) {
		leftover_maker_write(maker);
		_exit(write(ends[1], maker, sizeof(maker)) == sizeof(maker) ? 0 : 1);
	}
	cr_assert_eq(read(ends[0], maker, sizeof(maker)), (ssize_t)sizeof(maker));
	wait(NULL);
	close(ends[0]);
	close(ends[1]);
	cr_assert_eq(mkdir(folder, 0700), 0);
	snprintf(left, sizeof(left), "%s/.model.safetensors.by-%s.0123456789abcdef.tmp", folder, maker);
	close(open(left, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	maker[0] = maker[0] == 'f' ? 'e' : 'f';
	snprintf(foreign, sizeof(foreign), "%s/.model.safetensors.by-%s.0123456789abcdef.tmp", folder, maker);
	close(open(foreign, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	CTL_IS(0, "save", "m@v1", folder);
	SAYS("1 file of saves on other hosts, in other containers or before a reboot");
	cr_assert(access(left, F_OK) < 0 && access(foreign, F_OK) == 0);
	free((char *)folder);
	DROP(d, "m@v1");
}

/* Whichever way leads there. */
GPUWMD_TEST(ctl_save, files_outside_of_the_roots_are_not_written)
{
	char folder[160], file[200];

	snprintf(folder, sizeof(folder), "%s/elsewhere", d->dir);
	snprintf(file, sizeof(file), "%s/model.safetensors", folder);
	OK(publish_version(d->admin, d->device, "m@v1", SMALL(1)));
	cr_assert_eq(symlink(d->dir, path_in(d, "out")), 0);
	for (int i = 0; i < 2; i++) {
		CTL_IS(6, "save", "m@v1", i == 0 ? folder : path_in(d, "out/elsewhere/"));
		SAYS("/elsewhere could not describe the version: gpuwmd's roots are ");
		SAYS("--no-describe");
		cr_assert_neq(access(folder, F_OK), 0);
	}
	CTL_IS(0, "save", "m@v1", folder, "--no-describe");
	cr_assert_eq(access(file, F_OK), 0);
	CTL_IS(0, "-o", "json", "ls", "m");
	cr_assert(!strstr(output, "\"source\""));
	DROP(d, "m@v1");
}

GPUWMD_TEST(ctl_save, nothing_is_replaced_without_force)
{
	OK(publish_version(d->admin, d->device, "m@v1", SMALL(1)));
	CTL_IS(0, "save", "m@v1", path_in(d, "out"));
	CTL_IS(5, "save", "m@v1", path_in(d, "out"));
	SAYS("out/model.safetensors exists\n");
	CTL_IS(0, "save", "m@v1", path_in(d, "out"), "--force", "-o", "json");
	SAYS("\"described\":true");
	CTL_IS(4, "save", "m@v9", path_in(d, "other"));
	SAYS("there is no version m@v9");
	CTL_IS(4, "save", "m@v1", path_in(d, "no/folder"));
	SAYS("does not exist\n  make that folder first");
	CTL_IS(2, "save", "m@v1", "");
	SAYS("the folder is empty");
	cr_assert_neq(access(path_in(d, "other"), F_OK), 0);
	DROP(d, "m@v1");
}

GPUWMD_TEST(ctl_save, force_replaces_no_files_of_another_version)
{
	OK(publish_version(d->admin, d->device, "m@v1", SMALL(1)));
	OK(publish_version(d->admin, d->device, "m@v2", SMALL(2)));
	CTL_IS(0, "save", "m@v1", path_in(d, "out"));
	CTL_IS(5, "save", "m@v2", path_in(d, "out"), "--force");
	SAYS("m@v1 comes back from the files in ");
	demote_to_files(d);
	CTL_IS(5, "save", "m@v2", path_in(d, "out"), "--force");
	SAYS("are the only copy of m@v1");
	worker_waits(d, "m@v1", 1);
	CTL_IS(0, "save", "m@v1", path_in(d, "out"), "--force");
	DROP(d, "m@v1");
	CTL_IS(0, "save", "m@v2", path_in(d, "out"), "--force");
	DROP(d, "m@v2");
}

/* What changed since does not come back as this version, which stays described. */
GPUWMD_TEST(ctl_save, files_that_changed_are_refused)
{
	FILE *file;

	OK(publish_version(d->admin, d->device, "m@v1", SMALL(1)));
	CTL_IS(0, "save", "m@v1", path_in(d, "out"));
	demote_to_files(d);
	file = fopen(path_in(d, "out/model.safetensors"), "r+e");
	cr_assert(file && fseek(file, -3000, SEEK_END) == 0 && fputs("changed", file) >= 0 &&
		  fclose(file) == 0);
	{
		uint64_t jobs[GPUWM_MOVE_JOBS_MAX];
		size_t count;

		OK(gpuwm_promote(d->admin, "m@v1", jobs, &count));
		cr_assert_eq(count, 1);
		cr_assert_eq(gpuwm_job_wait(d->admin, jobs[0], 30000), -EBADMSG);
		cr_assert(strstr(gpuwm_error()->message, "model.safetensors has digest "), "%s",
			  gpuwm_error()->message);
	}
	cr_assert_str_eq(tier_of(d), "files");
	DROP(d, "m@v1");
}
