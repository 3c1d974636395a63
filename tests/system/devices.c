/* What only a machine with GPUs shows; on the stand-in for the driver, which
 * has several, logs its calls, and fails on demand. */
#include "harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef GPUWM_CUDA
#include <cuda.h>
#include <dlfcn.h>
#endif

SYSTEM_SUITE(devices);

#define ON_FAKECUDA() SKIP_UNLESS(backend() == BACKEND_FAKECUDA, "needs the stand-in for the driver")
#define FAILURES_MAX 400
#define FAILURE 999 /* the driver's "unknown error" */

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

Test(devices, a_version_may_have_a_replica_on_each)
{
	struct gpuwmd *d;
	struct gpuwm_client *client;
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);

	ON_FAKECUDA();
	d = gpuwmd_start(NULL);
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
	version_drop(d, "m", "v1");
	gpuwmd_stop_empty(d);
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

Test(devices, are_found_by_uuid_however_a_worker_numbers_them)
{
	struct gpuwmd *d;

	ON_FAKECUDA();
	d = gpuwmd_start(NULL);
	load_replicas(d, "m@v1");
	for (size_t i = 1; i <= 2; i++) {
		worker_with_visible("0,1", device_at(d, i), 0);
		worker_with_visible("1,0", device_at(d, i), 0);
		worker_with_visible(device_at(d, i), device_at(d, i), 0);
	}
	version_drop(d, "m", "v1");
	gpuwmd_stop_empty(d);
}

Test(devices, hidden_from_a_worker_are_an_error_and_no_lease)
{
	struct gpuwmd *d;

	ON_FAKECUDA();
	d = gpuwmd_start(NULL);
	load_replicas(d, "m@v1");
	worker_with_visible("1", device_at(d, 1), ENODEV);
	worker_with_visible("", device_at(d, 2), ENODEV);
	cr_assert(EVENTUALLY(1000, status_of(d, "leases") == 0));
	version_drop(d, "m", "v1");
	gpuwmd_stop_empty(d);
}

Test(devices, a_version_on_one_of_two_says_where_it_is)
{
	struct gpuwmd *d;
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;

	ON_FAKECUDA();
	d = gpuwmd_start(NULL);
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	options.device = device_at(d, 2);
	FAILS(ENODEV, gpuwm_attach(d->admin, "m", &options, &mapping));
	cr_assert(strstr(gpuwm_error()->message, d->device) || strstr(gpuwm_error()->detail, d->device));
	gpuwmd_stop(d);
}

Test(devices, a_full_one_fails_a_load_cleanly)
{
	struct gpuwmd *d;

	ON_FAKECUDA();
	setenv("FAKECUDA_MEMORY", "32M", 1);
	d = gpuwmd_start("--set", "budget.*=1G", NULL);
	FAILS(ENOSPC, load_try(d, checkpoint_write(d, "large", LARGE(1)), "m@v1"));
	load_version(d, checkpoint_write(d, "small", SMALL(1)), "m@v1");
	version_drop(d, "m", "v1");
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

Test(devices, attaching_copies_and_allocates_nothing)
{
	struct gpuwmd *d;
	char path[96];
	int pid;

	ON_FAKECUDA();
	d = gpuwmd_start(NULL);
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	pid = logged(d, "share", path, sizeof path);
	cr_assert(log_has(path, pid, "cuMemImportFromShareableHandle"));
	cr_assert(log_has(path, pid, "cuMemMap"));
	cr_assert(!log_has(path, pid, "cuMemcpy") && !log_has(path, pid, "cuMemAlloc") &&
		  !log_has(path, pid, "cuMemCreate") && !log_has(path, pid, "cuMemset"));
	pid = logged(d, "copy", path, sizeof path);
	cr_assert(log_has(path, pid, "cuMemcpy"), "the log would not show a copy");
	version_drop(d, "m", "v1");
	gpuwmd_stop_empty(d);
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

Test(devices, the_callers_context_is_left_as_it_was)
{
	struct gpuwmd *d;
	struct process worker;

	SKIP_UNLESS(backend() != BACKEND_HOST, "needs a driver");
	d = gpuwmd_start(NULL);
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	worker = process_start(worker_with_context, NULL);
	process_finish(&worker);
	version_drop(d, "m", "v1");
	gpuwmd_stop_empty(d);
}
#endif

/* ---- a driver that fails ---------------------------------------------- */

/* Attaches and detaches: 0, or 1 after a clean error. */
static int worker_failing(int argc, char **argv)
{
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;
	int r;

	(void)argc, (void)argv;
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	r = gpuwm_attach(client, "m", NULL, &mapping);
	if (r == 0) {
		bool whole = mapping_holds(mapping, 1);

		/* Detaching may fail to synchronise; it must be undone all the same. */
		gpuwm_detach(mapping);
		r = whole ? 0 : -EIO;
	} else {
		CHILD_ASSERT(gpuwm_error()->message[0]);
	}
	CHILD_ASSERT(gpuwm_ping(client, NULL) == 0);
	gpuwm_close(client);
	return r < 0;
}

/* Fails call n in processes named so. */
static void fail_set(const struct gpuwmd *d, const char *program, unsigned n)
{
	char text[96];

	snprintf(text, sizeof text, "*:%u:%d", n, FAILURE);
	setenv("FAKECUDA_FAIL", text, 1);
	setenv("FAKECUDA_FAIL_ONLY", program, 1);
	snprintf(text, sizeof text, "%s/calls", d->dir);
	setenv("FAKECUDA_LOG", text, 1);
	unlink(text);
}

static void fail_unset(void)
{
	unsetenv("FAKECUDA_FAIL");
	unsetenv("FAKECUDA_FAIL_ONLY");
	unsetenv("FAKECUDA_LOG");
}

/* Whether there was such a call. */
static bool fail_happened(const struct gpuwmd *d)
{
	char path[96], line[256];
	bool happened = false;
	int result;
	FILE *file;

	snprintf(path, sizeof path, "%s/calls", d->dir);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof line, file))
		happened |= sscanf(line, "%*d %*s %*s %d", &result) == 1 && result == FAILURE;
	if (file)
		fclose(file);
	return happened;
}

Test(devices, each_call_of_a_worker_may_fail, .timeout = 200)
{
	struct gpuwmd *d;
	bool happened = true;
	unsigned n;

	ON_FAKECUDA();
	d = gpuwmd_start(NULL);
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	for (n = 1; n < FAILURES_MAX && happened; n++) {
		struct process worker;
		int status;

		fail_set(d, "exe", n);
		worker = process_start(worker_failing, NULL);
		fail_unset();
		status = process_join(&worker);
		cr_assert(WIFEXITED(status) && WEXITSTATUS(status) <= 1, "call %u: status %#x", n, status);
		happened = fail_happened(d);
		cr_assert(happened || WEXITSTATUS(status) == 0);
		cr_assert(EVENTUALLY(1000, status_of(d, "leases") == 0));
	}
	printf("an attach, a look and a detach make %u calls\n", n - 2);
	cr_assert(n > 10 && n < FAILURES_MAX, "%u", n);
	version_drop(d, "m", "v1");
	gpuwmd_stop_empty(d);
}

/* A daemon whose loaders fail at call n: whether there was such a call. Calls that fail
 * early leave it without devices; it serves and leaves all the same. */
static bool load_with_failure(unsigned n)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwmd d;
	bool happened;
	int r, status;

	folder_make(&d);
	strcpy(d.device, "GPU-fa4e0000-0000-4000-8000-000000000000");
	fail_set(&d, "gpuwm-loader", n);
	d.pid = gpuwmd_spawn(&d, NULL);
	fail_unset();
	options.flags = GPUWM_CONNECT_ADMIN;
	options.wait_ms = 20000;
	OK(gpuwm_connect(&options, &d.admin));
	EVENTUALLY(1000, status_of(&d, "standby") == 1);
	r = load_try(&d, checkpoint_write(&d, "v1", SMALL(1)), "m@v1");
	cr_assert(r == 0 || gpuwm_error()->message[0]);
	if (r == 0)
		version_drop(&d, "m", "v1");
	cr_assert(EVENTUALLY(5000, status_of(&d, "bytes") == 0 && status_of(&d, "publishes") == 0 &&
					   memory_of(&d) == 0));
	gpuwm_close(d.admin);
	cr_assert(kill(d.pid, SIGTERM) == 0 && waitpid(d.pid, &status, 0) == d.pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "call %u: gpuwmd left with %#x", n, status);
	happened = fail_happened(&d);
	cr_assert(happened || r == 0, "%d", r);
	harness_cleanup();
	return happened;
}

Test(devices, each_call_of_a_loader_may_fail, .timeout = 500)
{
	unsigned n = 1;

	ON_FAKECUDA();
	setenv("FAKECUDA_DEVICES", "1", 1);
	while (n < FAILURES_MAX && load_with_failure(n))
		n++;
	printf("a load on a GPU makes %u calls\n", n - 1);
	cr_assert(n > 40 && n < FAILURES_MAX, "%u", n);
}
