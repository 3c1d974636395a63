/* Loads to several devices, and from files per rank. */
#include "harness.h"

#include "../../base/limits.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(several);

#define GPU_MAX 4

static const char *path_in(const struct gpuwmd *d, const char *name)
{
	static char path[256];

	snprintf(path, sizeof path, "%s/%s", d->root, name);
	return path;
}

static int load_named(struct gpuwmd *d, const char *source, const char *const *devices, size_t count)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	uint64_t job;
	int r;

	options.source = source;
	options.name = "m@v1";
	options.devices = devices;
	options.device_count = count;
	r = gpuwm_load(d->admin, &options, &job);
	return r < 0 ? r : gpuwm_job_wait(d->admin, job, 30000);
}

/* Loads m@v1 to the first GPUs of the stand-in, or to the daemon's one device. */
static int load_to(struct gpuwmd *d, const char *source, size_t gpus)
{
	const char *devices[GPU_MAX] = {d->device};
	const struct gpuwm_device *all;

	for (size_t i = 0; i < gpus; i++) {
		cr_assert_lt(i + 1, gpuwm_devices(d->admin, &all));
		devices[i] = all[i + 1].id;
	}
	return load_named(d, source, devices, gpus ? gpus : 1);
}

/* What one attach of this rank on this device (NULL: wherever) reads. */
static void reads(const char *device, uint32_t rank, uint64_t seed)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	options.device = device;
	options.rank = rank;
	OK(gpuwm_attach(client, "m", &options, &mapping));
	cr_assert_eq(gpuwm_mapping_version(mapping)->rank, rank);
	cr_assert(mapping_holds(mapping, seed), "rank %u on %s", rank, device);
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
}

/* True when a note of the first job has these words. */
static bool noted(struct gpuwmd *d, const char *words)
{
	json_t *jobs = query(d->admin, "jobs", NULL), *note;
	bool found = false;
	size_t i;

	json_array_foreach(json_object_get(json_array_get(json_object_get(jobs, "jobs"), 0), "notes"), i, note)
		found |= strstr(json_string_value(note), words) != NULL;
	json_decref(jobs);
	return found;
}

/* ---- replicas --------------------------------------------------------- */

static void replicas(const char *peers, const char *note)
{
	struct gpuwmd *d;
	const struct gpuwm_device *all;

	setenv("FAKECUDA_DEVICES", "4", 1);
	setenv("FAKECUDA_DIRTY", "1", 1);
	setenv("FAKECUDA_PEERS", peers, 1);
	d = gpuwmd_start(NULL);
	OK(load_to(d, checkpoint_write(d, "v1", LARGE(1)), 4));
	gpuwm_devices(d->admin, &all);
	for (size_t i = 1; i <= 4; i++)
		reads(all[i].id, 0, 1);
	cr_assert(noted(d, note));
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

Test(several, replicas_are_passed_on_between_gpus)
{
	ON_FAKECUDA();
	replicas("1", "003 gets its bytes over a peer copy from GPU-fa4e0000-0000-4000-8000-000000000002");
}

Test(several, replicas_come_from_the_host_where_gpus_are_no_peers)
{
	ON_FAKECUDA();
	replicas("0", "003 gets its bytes from the host: the driver says that it is no peer");
}

/* To the first GPU and to host. */
static int load_beside_host(struct gpuwmd *d, const char *source)
{
	return load_named(d, source, (const char *const[]){d->device, "host"}, 2);
}

FAKECUDA_TEST(several, replicas_on_host_and_gpu, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	OK(load_beside_host(d, checkpoint_write(d, "v1", LARGE(1))));
	reads(d->device, 0, 1);
	reads("host", 0, 1);
	DROP(d, "m@v1");
}

/* ---- files per rank --------------------------------------------------- */

/* One tensor more than rank 1 has, in a part of its own. */
static void ranks_write(struct gpuwmd *d)
{
	static const char second[] = "{\"tail\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}";
	char data[8 + sizeof second - 1 + 8];
	uint64_t length = sizeof second - 1;

	checkpoint_write(d, "m/model-rank-0-part-0", SMALL(10));
	checkpoint_write(d, "m/model-rank-1-part-0", SMALL(11));
	memcpy(data, &length, 8);
	memcpy(data + 8, second, length);
	content_fill(10, "tail", 0, data + 8 + length, 8);
	file_write(d, "m/model-rank-0-part-1.safetensors", data, sizeof data);
	file_write(d, "m/config.json", "{}", 2);
}

static void ranks_have_their_tensors(const char *first, const char *second)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor tensor;

	reads(first, 0, 10);
	reads(second, 1, 11);
	options.rank = 1;
	options.device = second;
	OK(gpuwm_attach(client, "m", &options, &mapping));
	cr_assert_eq(gpuwm_mapping_version(mapping)->world, 2);
	FAILS(ENOENT, gpuwm_tensor_find(mapping, "tail", &tensor));
	OK(gpuwm_detach(mapping));
	options.rank = 2;
	cr_assert_lt(gpuwm_attach(client, "m", &options, &mapping), 0, "there is no third");
	gpuwm_close(client);
}

GPUWMD_TEST(several, ranks_may_all_be_on_one_device)
{
	ranks_write(d);
	OK(load_to(d, path_in(d, "m"), 0));
	ranks_have_their_tensors(NULL, NULL);
	DROP(d, "m@v1");
}

Test(several, ranks_go_to_the_devices_in_their_order)
{
	const struct gpuwm_device *all;
	struct gpuwmd *d;

	ON_FAKECUDA();
	setenv("FAKECUDA_DIRTY", "1", 1);
	d = gpuwmd_start(NULL);
	ranks_write(d);
	OK(load_to(d, path_in(d, "m"), 2));
	gpuwm_devices(d->admin, &all);
	ranks_have_their_tensors(all[1].id, all[2].id);
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

FAKECUDA_TEST(several, ranks_may_be_on_host_and_gpu, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	ranks_write(d);
	OK(load_beside_host(d, path_in(d, "m")));
	ranks_have_their_tensors(d->device, "host");
	DROP(d, "m@v1");
}

static void refused(struct gpuwmd *d, size_t gpus, int code, const char *words)
{
	int r = load_to(d, path_in(d, "m"), gpus);

	cr_assert_eq(r, -code, "%d: %s", r, gpuwm_error()->message);
	cr_assert(strstr(gpuwm_error()->message, words), "'%s' does not say '%s'", gpuwm_error()->message,
		  words);
	cr_assert(EVENTUALLY(SOON_MS, memory_of(d) == 0));
}

Test(several, ranks_must_be_as_many_as_devices)
{
	struct gpuwmd *d;

	ON_FAKECUDA();
	setenv("FAKECUDA_DEVICES", "3", 1);
	d = gpuwmd_start(NULL);
	ranks_write(d);
	refused(d, 3, EINVAL, "has files for 2 ranks, but 3 devices are named");
	gpuwmd_stop_empty(d);
}

GPUWMD_TEST(several, ranks_of_which_one_is_bad_leave_nothing)
{
	ranks_write(d);
	file_write(d, "m/model-rank-1-part-0.safetensors", "x", 1);
	refused(d, 0, EBADMSG, "model-rank-1-part-0.safetensors");
}

/* ---- dry runs ----------------------------------------------------------- */

/* The plan of the first job. */
static json_t *dry_run(struct gpuwmd *d, const char *source, const char *const *devices, size_t count)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	json_t *jobs, *plan;
	uint64_t job;

	options.source = source;
	options.name = "m@v1";
	options.devices = devices;
	options.device_count = count;
	options.dry_run = true;
	OK(gpuwm_load(d->admin, &options, &job));
	OK(gpuwm_job_wait(d->admin, job, 30000));
	jobs = query(d->admin, "jobs", NULL);
	plan = json_incref(json_object_get(json_array_get(json_object_get(jobs, "jobs"), 0), "plan"));
	json_decref(jobs);
	return plan;
}

static uint64_t planned(const json_t *plan, size_t device, const char *key)
{
	return (uint64_t)json_integer_value(
		json_object_get(json_array_get(json_object_get(plan, "devices"), device), key));
}

/* What it says is what a load then takes. */
GPUWMD_TEST(several, a_dry_run_makes_nothing_and_is_right)
{
	const char *devices[] = {d->device};
	json_t *plan;

	ranks_write(d);
	plan = dry_run(d, path_in(d, "m"), devices, 1);
	cr_assert_eq(memory_of(d), 0);
	cr_assert_eq(json_integer_value(json_object_get(plan, "files")), 3);
	cr_assert_eq(planned(plan, 0, "segments"), 2);
	OK(load_to(d, path_in(d, "m"), 0));
	cr_assert_eq(status_of(d, "bytes"), planned(plan, 0, "bytes"));
	json_decref(plan);
	DROP(d, "m@v1");
}

FAKECUDA_TEST(several, a_dry_run_plans_each_device, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	const struct gpuwm_device *all;
	const char *devices[2];
	json_t *plan;

	ranks_write(d);
	gpuwm_devices(d->admin, &all);
	devices[0] = all[2].id;
	devices[1] = "host";
	plan = dry_run(d, path_in(d, "m"), devices, 2);
	cr_assert_eq(planned(plan, 0, "bytes"), MB(2), "of a GPU's granularity");
	cr_assert_eq(planned(plan, 1, "segments"), 1);
	cr_assert_lt(planned(plan, 1, "bytes"), MB(2));
	json_decref(plan);
}

/* ---- memory that is gone half-way ------------------------------------- */

static struct gpuwmd *start_failing(const char *failure)
{
	struct gpuwmd *d;

	setenv("FAKECUDA_FAIL", failure, 1);
	setenv("FAKECUDA_FAIL_ONLY", "gpuwm-loader", 1);
	d = gpuwmd_start(NULL);
	unsetenv("FAKECUDA_FAIL");
	unsetenv("FAKECUDA_FAIL_ONLY");
	return d;
}

static void full_half_way(struct gpuwmd *d, const char *source, size_t gpus)
{
	int r = load_to(d, source, gpus);

	cr_assert_eq(r, -ENOSPC, "%d: %s", r, gpuwm_error()->message);
	cr_assert(strstr(gpuwm_error()->message, "no room for"), "%s", gpuwm_error()->message);
	cr_assert(EVENTUALLY(SOON_MS, memory_of(d) == 0 && status_of(d, "publishes") == 0));
	cr_assert(!version_is(d, "m", "v1", "ready"));
}

FAKECUDA_TEST(several, the_second_device_is_full, start_failing("cuMemCreate:2:2"), gpuwmd_stop_empty)
{
	full_half_way(d, checkpoint_write(d, "v1", SMALL(1)), 2);
}

Test(several, the_device_is_full_before_the_second_segment)
{
	const uint64_t first = SEGMENT_BYTES_TARGET, all = first + 256;
	char header[256];
	const char *path;
	struct gpuwmd *d;

	ON_FAKECUDA();
	snprintf(header, sizeof header,
		 "{\"a\":{\"dtype\":\"U8\",\"shape\":[%" PRIu64 "],\"data_offsets\":[0,%" PRIu64 "]},"
		 "\"b\":{\"dtype\":\"U8\",\"shape\":[256],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}}",
		 first, first, first, all);
	setenv("FAKECUDA_MEMORY", "32G", 1);
	d = start_failing("cuMemCreate:2:2");
	unsetenv("FAKECUDA_MEMORY");
	path = safetensors_write(d, "holes.safetensors", header, 0);
	cr_assert_eq(truncate(path, (off_t)(8 + strlen(header) + all)), 0);
	full_half_way(d, path, 1);
	gpuwmd_stop_empty(d);
}

FAKECUDA_TEST(several, there_is_no_room_for_the_second_context, start_failing("cuDevicePrimaryCtxRetain:2:2"),
	      gpuwmd_stop_empty)
{
	int r;

	r = load_to(d, checkpoint_write(d, "v1", SMALL(1)), 2);
	cr_assert_eq(r, -ENOSPC, "%d: %s", r, gpuwm_error()->message);
	cr_assert(strstr(gpuwm_error()->message, "no room for a CUDA context"), "%s", gpuwm_error()->message);
	cr_assert(EVENTUALLY(SOON_MS, memory_of(d) == 0 && status_of(d, "publishes") == 0));
}

/* A driver that refuses to pin so: a slower load, which says why. */
static void pinning_refused(const char *failure, const char *note)
{
	struct gpuwmd *d;

	ON_FAKECUDA();
	d = start_failing(failure);
	OK(load_to(d, checkpoint_write(d, "v1", LARGE(1)), 1));
	cr_assert(noted(d, note));
	reads(NULL, 0, 1);
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

Test(several, a_driver_that_pins_less)
{
	/* 16 or 17: with many CPUs there would be more buffers than pieces. */
	pinning_refused("cuMemHostRegister_v2:1:2", "the driver pinned 8 of 1");
}

Test(several, a_driver_that_pins_nothing)
{
	pinning_refused("cuMemHostRegister_v2:0:2", "the driver pinned none of the buffers");
}
