/* What may be loaded, and what is said of everything else. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

SYSTEM_SUITE(loading);

static const char *path_in(struct gpuwmd *d, const char *name)
{
	static char path[256];

	snprintf(path, sizeof path, "%s/%s", d->root, name);
	return path;
}

/* ---- good sources ----------------------------------------------------- */

GPUWMD_TEST(loading, a_folder_with_one_file)
{
	checkpoint_write(d, "m/model", SMALL(1));
	load_version(d, path_in(d, "m"), "m@v1");
	worker_reads(d, "m", 1);
	DROP(d, "m@v1");
}

/* A file with some of the tensors of checkpoint 1, of 256 bytes each. */
static void shard_write(struct gpuwmd *d, const char *name, const char *first, const char *second)
{
	char header[512];
	uint8_t data[8 + 512 + 512] = {0};
	uint64_t length;

	length = (uint64_t)snprintf(header, sizeof header,
				    "{\"%s\":{\"dtype\":\"U8\",\"shape\":[256],\"data_offsets\":[0,256]},"
				    "\"%s\":{\"dtype\":\"U8\",\"shape\":[256],\"data_offsets\":[256,512]}}",
				    first, second);
	memcpy(data, &length, 8);
	memcpy(data + 8, header, length);
	content_fill(1, first, 0, data + 8 + length, 256);
	content_fill(1, second, 0, data + 8 + length + 256, 256);
	file_write(d, name, data, 8 + length + 512);
}

static const char sharded_index[] = "{\"metadata\":{\"total_size\":1024},\"weight_map\":{"
				    "\"a\":\"one.safetensors\",\"b\":\"one.safetensors\","
				    "\"c\":\"two.safetensors\",\"d\":\"two.safetensors\"}}";

GPUWMD_TEST(loading, a_sharded_folder)
{
	shard_write(d, "m/one.safetensors", "a", "b");
	shard_write(d, "m/two.safetensors", "c", "d");
	file_write(d, "m/model.safetensors.index.json", sharded_index, strlen(sharded_index));
	load_version(d, path_in(d, "m"), "m@v1");
	worker_reads(d, "m", 1);
	DROP(d, "m@v1");
}

/* The links of a Hugging Face cache lead from snapshots/ID/ to blobs/. */
GPUWMD_TEST(loading, a_snapshot_of_a_hugging_face_cache)
{
	char link[256];

	checkpoint_write(d, "hub/models--x/blobs/0123", SMALL(1));
	file_write(d, "hub/models--x/snapshots/abc/config.json", "{}", 2);
	snprintf(link, sizeof link, "%s/hub/models--x/snapshots/abc/model.safetensors", d->root);
	cr_assert(symlink("../../blobs/0123.safetensors", link) == 0);
	load_version(d, path_in(d, "hub/models--x/snapshots/abc"), "m@v1");
	worker_reads(d, "m", 1);
	DROP(d, "m@v1");
}

GPUWMD_TEST(loading, many_small_tensors)
{
	const struct checkpoint c = {.seed = 1, .count = 3000, .bytes = 256};

	load_version(d, checkpoint_write(d, "many", &c), "m@v1");
	worker_reads(d, "m", 1);
	DROP(d, "m@v1");
}

GPUWMD_TEST(loading, a_file_without_tensors)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_handles *handles;

	load_version(d, safetensors_write(d, "none.safetensors", "{}", 0), "m@v1");
	OK(gpuwm_get_handles(client, "m", NULL, &handles));
	cr_assert_eq(gpuwm_handles_tensor_count(handles), 0);
	OK(gpuwm_handles_release(handles));
	gpuwm_close(client);
	DROP(d, "m@v1");
}

GPUWMD_TEST_BY(loading, an_alias_is_moved_when_the_version_is_ready, gpuwmd_start(NULL), gpuwmd_stop)
{
	uint64_t job;

	load_small(d, 1);
	OK(load_start(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2", "current", &job));
	OK(gpuwm_job_wait(d->admin, job, 20000));
	worker_reads(d, "m", 2);
	worker_reads(d, "m@previous", 1);
}

GPUWMD_TEST(loading, several_loads_at_once)
{
	uint64_t jobs[8];
	char name[16];

	checkpoint_write(d, "v1", SMALL(1));
	for (int i = 0; i < 8; i++) {
		snprintf(name, sizeof name, "m%d@v1", i);
		OK(load_start(d, path_in(d, "v1.safetensors"), name, NULL, &jobs[i]));
	}
	for (int i = 0; i < 8; i++) {
		OK(gpuwm_job_wait(d->admin, jobs[i], 60000));
		snprintf(name, sizeof name, "m%d", i);
		worker_reads(d, name, 1);
		version_drop(d, name, "v1");
	}
}

/* ---- bad sources ------------------------------------------------------ */

/* Refused with this code, words in the error, and nothing left. */
static void refused(struct gpuwmd *d, const char *source, int code, const char *words)
{
	int r = load_try(d, source, "bad@v1");
	char said[2300];

	snprintf(said, sizeof said, "%s (%s)", gpuwm_error()->message, gpuwm_error()->detail);
	cr_assert_eq(r, -code, "%s: %d: %s", source, r, said);
	cr_assert(strcasestr(said, words), "'%s' does not say '%s'", said, words);
	cr_assert(EVENTUALLY(SOON_MS, memory_of(d) == 0));
}

/* Of each kind one. Which sources the loader refuses, and with which words, is in tests/unit/loader_*.c. */
GPUWMD_TEST(loading, a_source_that_is_refused_leaves_nothing)
{
	static const char wrong_map[] =
		"{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"gone.safetensors\"}}";
	const char *path;

	refused(d, "/etc/passwd", EACCES, "the source /etc/passwd is beneath no configured root");
	refused(d, "relative/model.safetensors", EINVAL, "");
	refused(d, path_in(d, "nothing.safetensors"), ENOENT, "nothing.safetensors");
	path = checkpoint_write(d, "v1", SMALL(1));
	cr_assert(truncate(path, 100) == 0);
	refused(d, path, EBADMSG, "is truncated: it has 100 bytes, its header alone needs");
	refused(d, safetensors_write(d, "bad.safetensors", "{\"t\":7}", 4), EBADMSG, "\"t\"");
	refused(d, file_write(d, "model.gguf", "GGUF\3\0\0\0\0\0\0\0\0\0\0\0", 16), ENOTSUP, "safetensors");
	shard_write(d, "m/one.safetensors", "a", "b");
	file_write(d, "m/model.safetensors.index.json", wrong_map, strlen(wrong_map));
	refused(d, path_in(d, "m"), ENOENT, "gone.safetensors");
	path = path_in(d, "fifo.safetensors");
	cr_assert(mkfifo(path, 0600) == 0);
	refused(d, path, EINVAL, "fifo");
}

/* Such writes change no time of the file. */
GPUWMD_TEST(loading, a_file_that_is_mapped_for_writing_is_refused)
{
	const char *path = checkpoint_write(d, "v1", SMALL(1));
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *address = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	cr_assert_neq(address, MAP_FAILED);
	close(fd);
	refused(d, path, EBUSY, "is open for writing, or mapped for writing, in another process");
	munmap(address, 4096);
	load_version(d, path, "m@v1");
	DROP(d, "m@v1");
}

/* A loader judges it, and the next one finds it back. */
GPUWMD_TEST(loading, a_root_that_is_gone_is_told_by_a_load_status_doctor_and_the_log)
{
	char away[160], says[256], source[160];

	snprintf(away, sizeof away, "%s.away", d->root);
	snprintf(says, sizeof says, "the root %s can't be used: No such file or directory", d->root);
	snprintf(source, sizeof source, "%s/m", d->root);
	cr_assert_eq(rename(d->root, away), 0);
	CTL_IS(4, "load", source, "m@v1", "--device", d->device, "--wait");
	SAYS(says);
	CTL_IS(1, "doctor");
	SAYS(says);
	CTL_IS(0, "status");
	SAYS(says);
	cr_expect(log_says(d, says));
	cr_assert_eq(rename(away, d->root), 0);
	CTL("doctor");
	cr_expect_not(strstr(output, says), "%s", output);
	SAYS("can use it");
	CTL_IS(0, "status");
	cr_expect_not(strstr(output, says), "%s", output);
}

/* ---- jobs ------------------------------------------------------------- */

GPUWMD_TEST_BY(loading, no_room_on_the_device,
	       gpuwmd_start("--set", "budget.host=8M", "--set", "budget.*=584M", NULL), gpuwmd_stop_empty)
{
	/* 576 MiB of a GPU are for the loader's context. */
	const char *path = checkpoint_write(d, "v1", LARGE(1));

	refused(d, path, ENOSPC, "8");
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	DROP(d, "m@v2");
}

GPUWMD_TEST_BY(loading, a_failed_load_touches_nothing_that_is_current, gpuwmd_start(NULL), gpuwmd_stop)
{
	uint64_t job;

	load_small(d, 1);
	OK(load_start(d, safetensors_write(d, "bad.safetensors", "{", 0), "m@v2", "current", &job));
	FAILS(EBADMSG, gpuwm_job_wait(d->admin, job, 20000));
	worker_reads(d, "m", 1);
}

GPUWMD_TEST(loading, the_same_tag_twice)
{
	const char *path = checkpoint_write(d, "v1", LARGE(1));
	uint64_t first, second;
	int r, s;

	OK(load_start(d, path, "m@v1", NULL, &first));
	s = load_start(d, path, "m@v1", NULL, &second);
	if (s == 0)
		s = gpuwm_job_wait(d->admin, second, 20000);
	r = gpuwm_job_wait(d->admin, first, 20000);
	/* The second one's loader may be the faster one. */
	cr_assert((r == 0 && s == -EEXIST) || (r == -EEXIST && s == 0), "%d and %d: %s", r, s,
		  gpuwm_error()->message);
	FAILS(EEXIST, load_try(d, path, "m@v1"));
	worker_reads(d, "m", 1);
	DROP(d, "m@v1");
}

#define CANCELS_MAX 10

GPUWMD_TEST(loading, a_job_that_is_cancelled)
{
	const struct checkpoint c = {.seed = 1, .count = 64, .bytes = MB(4)};
	const char *path = checkpoint_write(d, "v1", &c);
	uint64_t job;
	int r;

	/* On a busy machine the loader may be the faster one. */
	for (int tries = 0; tries < CANCELS_MAX; tries++) {
		OK(load_start(d, path, "m@v1", NULL, &job));
		r = gpuwm_job_cancel(d->admin, job);
		if (r == 0)
			break;
		OK(gpuwm_job_wait(d->admin, job, 20000));
		DROP(d, "m@v1");
	}
	cr_assert_eq(r, 0, "%s", gpuwm_error()->message);
	FAILS(ECANCELED, gpuwm_job_wait(d->admin, job, 20000));
	FAILS(ENOENT, gpuwm_job_cancel(d->admin, job));
	cr_assert(EVENTUALLY(SOON_MS, memory_of(d) == 0));
	load_version(d, path, "m@v1");
	DROP(d, "m@v1");
}

GPUWMD_TEST(loading, a_job_that_is_unknown)
{
	FAILS(ENOENT, gpuwm_job_wait(d->admin, 4711, 0));
	FAILS(ENOENT, gpuwm_job_cancel(d->admin, 4711));
}

GPUWMD_TEST(loading, a_device_that_is_not_there)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	const char *device = "GPU-00000000-0000-0000-0000-000000000000";
	uint64_t job;

	options.source = checkpoint_write(d, "v1", SMALL(1));
	options.name = "m@v1";
	options.devices = &device;
	options.device_count = 1;
	FAILS(ENODEV, gpuwm_load(d->admin, &options, &job));
}
