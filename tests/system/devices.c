/* What only a machine with GPUs shows; on the stand-in for the driver, which
 * has several and logs its calls. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef GPUWM_CUDA
#include <cuda.h>
#include <dlfcn.h>
#endif

SYSTEM_SUITE(devices);

static const char *device_at(struct gpuwmd *d, size_t position)
{
	const struct gpuwm_device *devices;
	size_t count = gpuwm_devices(d->admin, &devices);

	cr_assert_lt(position, count);
	return devices[position].id;
}

static void load_replicas(struct gpuwmd *d, const char *name)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	const char *devices[2] = {device_at(d, 1), device_at(d, 2)};
	uint64_t job;

	options.source = checkpoint_write(d, "v1", SMALL(1));
	options.name = name;
	options.devices = devices;
	options.device_count = 2;
	OK(gpuwm_load(d->admin, &options, &job));
	OK(gpuwm_job_wait(d->admin, job, 30000));
}

/* ---- several devices -------------------------------------------------- */

FAKECUDA_TEST(devices, a_version_may_have_a_replica_on_each, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	struct gpuwm_client *client;
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);

	client = client_new();
	load_replicas(d, "m@v1");
	for (size_t i = 1; i <= 2; i++) {
		struct gpuwm_mapping *mapping;

		options.device = device_at(d, i);
		OK(gpuwm_attach(client, "m", &options, &mapping));
		cr_assert_str_eq(gpuwm_mapping_version(mapping)->device, options.device);
		cr_assert(mapping_holds(mapping, 1));
		OK(gpuwm_detach(mapping));
	}
	gpuwm_close(client);
	CTL_IS(4, "show", "m");
	SAYS("on several devices, and none is named\n  it is on GPU-fa4e0000-0000-4000-8000-000000000000, GPU-");
	CTL_IS(0, "demote", "m", "--to", "files", "--wait");
	CTL_IS(0, "promote", "m");
	cr_expect_null(strstr(output, "to device;"), "%s", output);
	CTL_IS(0, "promote", "m", "--wait");
	DROP(d, "m@v1");
}

static void replica_publish(struct gpuwmd *d, const char *device, const char *join,
			    struct gpuwm_publish **ret_publish)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	struct gpuwm_tensor_spec specs[16];

	options.name = "m@v1";
	options.device = device;
	options.join = join;
	checkpoint_specs(SMALL(1), specs);
	OK(gpuwm_publish_begin(d->admin, &options, specs, checkpoint_tensors(SMALL(1)), ret_publish));
	OK(publish_fill(*ret_publish, SMALL(1)));
}

FAKECUDA_TEST(devices, replicas_may_be_published, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	struct gpuwm_version_info version;
	struct gpuwm_publish *first, *second;

	replica_publish(d, device_at(d, 1), NULL, &first);
	replica_publish(d, device_at(d, 2), gpuwm_publish_id(first), &second);
	OK(gpuwm_publish_commit(second, &version));
	cr_assert(!version_is(d, "m", "v1", "ready"));
	OK(gpuwm_publish_commit(first, &version));
	cr_assert(version_is(d, "m", "v1", "ready"));
	DROP(d, "m@v1");
}

/* argv: the device to ask for, its error or 0. */
static int worker_on_device(int argc, char **argv)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;
	int r;

	CHILD_ASSERT(argc == 2);
	options.device = argv[0];
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	r = gpuwm_attach(client, "m", &options, &mapping);
	CHILD_ASSERT(r == -atoi(argv[1]));
	if (r == 0) {
		CHILD_ASSERT(strcmp(gpuwm_mapping_version(mapping)->device, argv[0]) == 0);
		CHILD_ASSERT(mapping_holds(mapping, 1));
		CHILD_ASSERT(gpuwm_detach(mapping) == 0);
	}
	gpuwm_close(client);
	return 0;
}

static void worker_with_visible(const char *visible, const char *device, int error)
{
	struct process worker;
	char text[16];

	snprintf(text, sizeof text, "%d", error);
	setenv("CUDA_VISIBLE_DEVICES", visible, 1);
	worker = process_start(worker_on_device, device, text, NULL);
	unsetenv("CUDA_VISIBLE_DEVICES");
	process_finish(&worker);
}

FAKECUDA_TEST(devices, are_found_by_uuid_however_a_worker_numbers_them, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	load_replicas(d, "m@v1");
	for (size_t i = 1; i <= 2; i++) {
		worker_with_visible("0,1", device_at(d, i), 0);
		worker_with_visible("1,0", device_at(d, i), 0);
		worker_with_visible(device_at(d, i), device_at(d, i), 0);
	}
	DROP(d, "m@v1");
}

FAKECUDA_TEST(devices, hidden_from_a_worker_are_an_error_and_no_lease, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	load_replicas(d, "m@v1");
	worker_with_visible("1", device_at(d, 1), ENODEV);
	worker_with_visible("", device_at(d, 2), ENODEV);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0));
	DROP(d, "m@v1");
}

FAKECUDA_TEST(devices, a_version_on_one_of_two_says_where_it_is, gpuwmd_start(NULL), gpuwmd_stop)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;

	load_small(d, 1);
	options.device = device_at(d, 2);
	FAILS(ENODEV, gpuwm_attach(d->admin, "m", &options, &mapping));
	cr_assert(strstr(gpuwm_error()->message, d->device) || strstr(gpuwm_error()->detail, d->device));
}

Test(devices, a_full_one_fails_a_load_cleanly)
{
	struct gpuwmd *d;

	ON_FAKECUDA();
	setenv("FAKECUDA_MEMORY", "32M", 1);
	d = gpuwmd_start("--set", "budget.*=1G", NULL);
	FAILS(ENOSPC, load_try(d, checkpoint_write(d, "large", LARGE(1)), "m@v1"));
	load_version(d, checkpoint_write(d, "small", SMALL(1)), "m@v1");
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

/* ---- what attaching calls --------------------------------------------- */

static bool log_has(const char *path, int pid, const char *function)
{
	FILE *file = fopen(path, "re");
	char line[256], name[128];
	int from;
	bool found = false;

	cr_assert(file);
	while (fgets(line, sizeof line, file)) {
		if (sscanf(line, "%d %*s %127s", &from, name) == 2 && from == pid &&
		    strncmp(name, function, strlen(function)) == 0)
			found = true;
	}
	fclose(file);
	return found;
}

/* argv: the mode. "share" attaches only; "copy" is how it would look otherwise. */
static int worker_logged(int argc, char **argv)
{
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor tensor;
	uint8_t byte;

	CHILD_ASSERT(argc == 1);
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(gpuwm_attach(client, "m", NULL, &mapping) == 0);
	if (strcmp(argv[0], "copy") == 0) {
		CHILD_ASSERT(gpuwm_tensor_find(mapping, "matrix", &tensor) == 0);
		CHILD_ASSERT(gpuwm_tensor_read(mapping, &tensor, 0, &byte, 1) == 0);
	}
	CHILD_ASSERT(gpuwm_detach(mapping) == 0);
	gpuwm_close(client);
	return 0;
}

static int logged(struct gpuwmd *d, const char *mode, char *path, size_t size)
{
	struct process worker;
	int pid;

	snprintf(path, size, "%s/calls-%s", d->dir, mode);
	setenv("FAKECUDA_LOG", path, 1);
	worker = process_start(worker_logged, mode, NULL);
	unsetenv("FAKECUDA_LOG");
	pid = worker.pid;
	process_finish(&worker);
	return pid;
}

FAKECUDA_TEST(devices, attaching_copies_and_allocates_nothing, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	char path[96];
	int pid;

	load_small(d, 1);
	pid = logged(d, "share", path, sizeof path);
	cr_assert(log_has(path, pid, "cuMemImportFromShareableHandle"));
	cr_assert(log_has(path, pid, "cuMemMap"));
	cr_assert(!log_has(path, pid, "cuMemcpy") && !log_has(path, pid, "cuMemAlloc") &&
		  !log_has(path, pid, "cuMemCreate") && !log_has(path, pid, "cuMemset"));
	pid = logged(d, "copy", path, sizeof path);
	cr_assert(log_has(path, pid, "cuMemcpy"), "the log would not show a copy");
	DROP(d, "m@v1");
}

#ifdef GPUWM_CUDA
/* The driver by dlopen, as the test's program must start without one. */
#define DRIVER(name) ((__typeof__(name) *)dlsym(driver, #name))

static int worker_with_context(int argc, char **argv)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;
	CUcontext mine, now;
	CUdevice device;

	(void)argc, (void)argv;
	CHILD_ASSERT(driver && DRIVER(cuInit)(0) == CUDA_SUCCESS);
	CHILD_ASSERT(DRIVER(cuDeviceGet)(&device, 0) == CUDA_SUCCESS);
	CHILD_ASSERT(DRIVER(cuDevicePrimaryCtxRetain)(&mine, device) == CUDA_SUCCESS);
	CHILD_ASSERT(DRIVER(cuCtxSetCurrent)(mine) == CUDA_SUCCESS);
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(gpuwm_attach(client, "m", NULL, &mapping) == 0);
	CHILD_ASSERT(mapping_holds(mapping, 1));
	CHILD_ASSERT(DRIVER(cuCtxGetCurrent)(&now) == CUDA_SUCCESS && now == mine);
	CHILD_ASSERT(gpuwm_detach(mapping) == 0);
	CHILD_ASSERT(DRIVER(cuCtxGetCurrent)(&now) == CUDA_SUCCESS && now == mine);
	CHILD_ASSERT(DRIVER(cuCtxSetCurrent)(NULL) == CUDA_SUCCESS);
	CHILD_ASSERT(gpuwm_attach(client, "m", NULL, &mapping) == 0);
	CHILD_ASSERT(DRIVER(cuCtxGetCurrent)(&now) == CUDA_SUCCESS && now == NULL);
	CHILD_ASSERT(gpuwm_detach(mapping) == 0);
	gpuwm_close(client);
	return 0;
}

GPUWMD_TEST_IF(devices, the_callers_context_is_left_as_it_was,
	       SKIP_UNLESS(backend() != BACKEND_HOST, "needs a driver"), gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	struct process worker;

	load_small(d, 1);
	worker = process_start(worker_with_context, NULL);
	process_finish(&worker);
	DROP(d, "m@v1");
}
#endif
