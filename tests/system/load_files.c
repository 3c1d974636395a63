/* Loads of files that the caller opened, which lie beneath no root. */
#include "user.h"

#include "tests/support/any/own_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

SYSTEM_SUITE(load_files);

/* Writes checkpoint 1, opens it, and removes it: nobody can open it by a path any more. */
static int open_checkpoint(struct gpuwmd *d)
{
	const char *path = checkpoint_write(d, "gone", SMALL(1));
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	cr_assert(fd >= 0 && unlink(path) == 0);
	return fd;
}

/* Begins a load of this file on the test's device. */
static int load_file(struct gpuwmd *d, struct gpuwm_client *client, const char *ref, int fd, uint64_t *ret_job)
{
	const struct gpuwm_load_file file = {"model.safetensors", fd};
	const char *devices[] = {d->device};
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	int r;

	options.source = "hf:acme/tiny@0123abc";
	options.name = ref;
	options.devices = devices;
	options.device_count = 1;
	options.files = &file;
	options.file_count = 1;
	r = gpuwm_load(client, &options, ret_job);
	close(fd);
	return r;
}

GPUWMD_TEST(load_files, a_publisher_loads_what_it_has_open)
{
	struct gpuwm_client *client = client_new();
	uint64_t job;
	json_t *entry;

	OK(load_file(d, client, "m@v1", open_checkpoint(d), &job));
	OK(gpuwm_job_wait(client, job, -1));
	gpuwm_close(client);
	worker_reads(d, "m", 1);
	entry = version_entry(d, "m", "v1");
	cr_assert(json_is_false(json_object_get(entry, "by_operator")), "the version is its user's");
	json_decref(entry);
	CTL_IS(0, "jobs", "-o", "json");
	SAYS("hf:acme/tiny@0123abc");
	CTL("demote", "m@v1", "--to", "files", "--wait");
	SAYS("has no source");
	DROP(d, "m@v1");
}

GPUWMD_TEST(load_files, an_operators_version_is_operators)
{
	uint64_t job;
	json_t *entry;

	OK(load_file(d, d->admin, "m@v1", open_checkpoint(d), &job));
	OK(gpuwm_job_wait(d->admin, job, -1));
	worker_reads(d, "m", 1);
	entry = version_entry(d, "m", "v1");
	cr_assert(json_is_true(json_object_get(entry, "by_operator")));
	json_decref(entry);
	DROP(d, "m@v1");
}

GPUWMD_TEST(load_files, what_is_wrong_with_a_file_is_the_jobs_error)
{
	struct gpuwm_client *client = client_new();
	uint64_t job;

	OK(load_file(d, client, "m@v1", open("/dev/zero", O_RDONLY | O_CLOEXEC), &job));
	FAILS(EINVAL, gpuwm_job_wait(client, job, -1));
	cr_assert(strstr(gpuwm_error()->message, "is no regular file"), "%s", gpuwm_error()->message);
	gpuwm_close(client);
}

/* One packet brings all of them. */
GPUWMD_TEST(load_files, more_files_than_a_packet_holds_are_refused_before_the_load_begins)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	struct gpuwm_load_file files[254];
	const char *devices[] = {d->device};
	char name[257];
	uint64_t job;

	memset(name, 'n', 256);
	name[256] = '\0';
	for (size_t i = 0; i < 254; i++)
		files[i] = (struct gpuwm_load_file){name + 1, 0};
	options.source = "hf:acme/tiny@0123abc";
	options.name = "m@v1";
	options.devices = devices;
	options.device_count = 1;
	options.files = files;
	options.file_count = 254;
	FAILS(E2BIG, gpuwm_load(d->admin, &options, &job));
	cr_assert(strstr(gpuwm_error()->message, "254 files, and 253 are possible"), "%s",
		  gpuwm_error()->message);
	options.file_count = 253;
	files[252].name = name;
	FAILS(EINVAL, gpuwm_load(d->admin, &options, &job));
	cr_assert(strstr(gpuwm_error()->message, "has 256 bytes, and 255 are possible"), "%s",
		  gpuwm_error()->message);
	files[0].fd = -1;
	FAILS(EINVAL, gpuwm_load(d->admin, &options, &job));
	CTL_IS(0, "jobs");
	SAYS("no jobs");
	files[0].fd = 0;
	files[252].name = name + 1;
	OK(gpuwm_load(d->admin, &options, &job));
	cr_assert_lt(gpuwm_job_wait(d->admin, job, -1),
		     0); /* they are no files of a model, but all of them came */
	cr_assert_null(strstr(gpuwm_error()->message, "packet"), "%s", gpuwm_error()->message);
}

/* Such a loader has parsed a user's files: it makes nobody else's version. */
FAKECUDA_TEST(load_files, a_users_load_gets_no_kept_context_and_leaves_none,
	      gpuwmd_start("--set", "loader.keep_context=60", NULL), gpuwmd_stop_empty)
{
	struct gpuwm_client *client = client_new();
	uint64_t job, kept;

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	cr_assert(EVENTUALLY(SOON_MS, device_number(d, "contexts") > 0));
	kept = device_number(d, "contexts");
	OK(load_file(d, client, "m@v2", open_checkpoint(d), &job));
	OK(gpuwm_job_wait(client, job, -1));
	cr_assert(EVENTUALLY(SOON_MS, device_number(d, "contexts") == kept),
		  "the operator's context stays, and no other");
	gpuwm_close(client);
	CTL_IS(0, "jobs", "-o", "json");
	cr_assert_null(strstr(output, "contexts were kept for it"), "%s", output);
	loaders_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "loaders") == 1 && status_of(d, "standby") == 1));
	DROP(d, "m@v2", "m@v1");
}

/* ---- who may ---- */

GPUWMD_TEST(load_files, only_operators_load_paths_share_and_retire)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	const struct gpuwm_load_file file = {"model.safetensors", 0};
	struct gpuwm_client *client = client_new();
	uint64_t job;

	options.source = d->root;
	options.name = "m@v1";
	FAILS(EACCES, gpuwm_load(client, &options, &job));
	options.files = &file;
	options.file_count = 1;
	FAILS(EINVAL, gpuwm_load(client, &options, &job)); /* the source is a path */
	options.source = "hf:acme/tiny@0123abc";
	options.share_with = "m@v0";
	FAILS(EACCES, gpuwm_load(client, &options, &job));
	options.share_with = NULL;
	options.alias = "prod";
	options.retire_old = true;
	FAILS(EACCES, gpuwm_load(client, &options, &job));
	gpuwm_close(client);
}

/* ALICE may publish, and has one version at most. */
static struct gpuwmd *start_for_alice(void)
{
	char config[64];
	FILE *file;

	snprintf(config, sizeof config, "%s/rules.conf", own_folder());
	file = fopen(config, "w");
	cr_assert(file && fputs("[model.1]\nmatch = *\npublish = 61001\n", file) >= 0 && fclose(file) == 0);
	return gpuwmd_start("--config", config, "--set", "socket.mode=0666", "--set",
			    "limits.versions_per_uid=1", NULL);
}

#define USERS_TEST(name)                                                                                       \
	GPUWMD_TEST_IF(                                                                                        \
		load_files, name,                                                                              \
		{                                                                                              \
			NEEDS_ROOT();                                                                          \
			SKIP_UNLESS(backend() == BACKEND_HOST, "rights know no memory kinds");                 \
		},                                                                                             \
		start_for_alice(), gpuwmd_stop_empty)

USERS_TEST(a_load_counts_as_its_users_publish)
{
	struct process alice = user_start(ALICE), bob = user_start(BOB);

	checkpoint_write(d, "a", SMALL(1));
	chmod(d->root, 0755);
	DOES(&alice, "load %s/a.safetensors m@v1", d->root);
	REFUSED(EACCES, &bob, "load %s/a.safetensors m@v2", d->root);
	cr_assert(strstr(said, "belongs to uid 61001"), "%s", said);
	REFUSED(EDQUOT, &alice, "load %s/a.safetensors m@v2", d->root);
	cr_assert(strstr(said, "uid 61001"), "%s", said);
	user_end(&alice);
	user_end(&bob);
	DROP(d, "m@v1");
}

USERS_TEST(a_user_sees_and_cancels_its_own_load_only)
{
	struct process alice = user_start(ALICE), bob = user_start(BOB);

	checkpoint_write(d, "a", SMALL(1));
	chmod(d->root, 0755);
	DOES(&alice, "load %s/a.safetensors m@v1", d->root);
	REFUSED(EACCES, &bob, "cancel 1");
	REFUSED(EACCES, &bob, "job 1");
	REFUSED(ENOENT, &alice, "cancel 1");
	cr_assert(strstr(said, "is done already"), "%s", said);
	DOES(&alice, "job 1");
	user_end(&alice);
	user_end(&bob);
	DROP(d, "m@v1");
}

static int describe(struct gpuwm_client *client, const char *folder)
{
	uint64_t jobs[GPUWM_MOVE_JOBS_MAX];
	size_t count = 0;
	int r = gpuwm_describe(client, "m@v1", folder, jobs, &count);

	for (size_t i = 0; r == 0 && i < count; i++)
		r = gpuwm_job_wait(client, jobs[i], 30000);
	return r;
}

/* The loader may read what a publisher may not. So it compares files that come from the publisher, and later no others. */
GPUWMD_TEST(load_files, a_publisher_describes_by_files_that_it_passes)
{
	struct gpuwm_client *client = client_new();
	char folder[200], file[240], other[240];
	uint64_t job;

	snprintf(folder, sizeof folder, "%s/mine", d->root);
	snprintf(file, sizeof file, "%s/model.safetensors", folder);
	snprintf(other, sizeof other, "%s/other.safetensors", d->root);
	OK(load_file(d, client, "m@v1", open_checkpoint(d), &job));
	OK(gpuwm_job_wait(client, job, -1));
	FAILS(ENOENT, describe(client, folder));
	cr_assert_eq(mkdir(folder, 0755), 0);
	FAILS(ENOENT, describe(client, folder));
	cr_assert_eq(rename(checkpoint_write(d, "same", SMALL(1)), file), 0);
	OK(describe(client, folder));
	CTL_IS(0, "demote", "m@v1", "--to", "files", "--wait");
	CTL_IS(0, "promote", "m@v1", "--wait");
	CTL_IS(0, "verify", "m@v1", "--source", "--wait");
	/* Another file with the same bytes is no secret, but a link to it might lead to one. */
	cr_assert_eq(rename(file, other) | symlink("../other.safetensors", file), 0);
	FAILS(ELOOP, describe(client, folder));
	CTL_IS(9, "verify", "m@v1", "--source", "--wait");
	SAYS("does not have the files by which m@v1 was described");
	unlink(file);
	cr_assert_eq(rename(checkpoint_write(d, "differs", SMALL(2)), file), 0);
	CTL_IS(9, "verify", "m@v1", "--source", "--wait");
	SAYS("does not have the files by which m@v1 was described");
	cr_assert(!strstr(output, "tensor"), "%s", output);
	FAILS(EBADMSG, describe(client, folder));
	cr_assert(strstr(gpuwm_error()->message, "tensor"), "it may read them: %s", gpuwm_error()->message);
	gpuwm_close(client);
	DROP(d, "m@v1");
}
