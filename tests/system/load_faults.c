/* Loads on a driver that misbehaves: an error that says what happened, nothing that is half there, and all
 * memory back. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

SYSTEM_SUITE(load_faults);

/* A gpuwmd whose loaders have this setting of the stand-in. */
static struct gpuwmd *start_with(const char *name, const char *value)
{
	struct gpuwmd *d;

	setenv(name, value, 1);
	setenv("FAKECUDA_FAIL_ONLY", "gpuwm-loader", 1);
	d = gpuwmd_start(NULL);
	unsetenv(name);
	unsetenv("FAKECUDA_FAIL_ONLY");
	return d;
}

static int load_by_hand(struct gpuwmd *d, const char *path)
{
	return CTL("load", path, "m@v1", "--device", d->device, "--wait");
}

/* All memory is back, and the version is not to be had. */
static void left_nothing(struct gpuwmd *d)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_handles *handles;

	cr_assert(version_is(d, "m", "v1", "failed") || version_is(d, "m", "v1", "none"));
	cr_assert_lt(gpuwm_get_handles(client, "m@v1", NULL, &handles), 0);
	/* A thread that hangs in the driver keeps no loader: gpuwmd would wait LOADER_EXIT_MS for it. */
	cr_assert(EVENTUALLY(SOON_MS, memory_of(d) == 0 && status_of(d, "bytes") == 0));
	gpuwm_close(client);
	gpuwmd_stop_empty(d);
}

FAKECUDA_TEST(load_faults, a_bit_that_flips_on_its_way_is_found, start_with("FAKECUDA_FLIP", "1"), left_nothing)
{
	cr_assert_eq(load_by_hand(d, checkpoint_write(d, "v1", LARGE(1))), 9, "%s", output);
	SAYS("on GPU-");
	SAYS(" are not those that were read: tensor \"");
	SAYS("the index says digest ");
	SAYS(" bytes have ");
}

/* The budget says yes, the device no: somebody else has the memory. */
Test(load_faults, a_device_whose_memory_is_gone)
{
	struct gpuwmd *d;

	ON_FAKECUDA();
	setenv("FAKECUDA_MEMORY", "32M", 1);
	d = gpuwmd_start("--set", "budget.*=1G", NULL);
	unsetenv("FAKECUDA_MEMORY");
	cr_assert_eq(load_by_hand(d, checkpoint_write(d, "v1", LARGE(1))), 8, "%s", output);
	SAYS(d->device);
	left_nothing(d);
}

/* Memory of the host is a file to the kernel. */
GPUWMD_TEST_IF(load_faults, a_file_limit_is_named,
	       SKIP_UNLESS(backend() == BACKEND_HOST, "a GPU's memory is no file"), gpuwmd_start(NULL),
	       left_nothing)
{
	pid_t loaders[CHILDREN_MAX];
	size_t count;

	count = loaders_of(d->pid, loaders);
	while (count > 0)
		cr_assert_eq(prlimit(loaders[--count], RLIMIT_FSIZE, &(struct rlimit){MB(1), MB(1)}, NULL), 0);
	cr_assert_eq(load_by_hand(d, checkpoint_write(d, "v1", LARGE(1))), 8, "%s", output);
	SAYS("RLIMIT_FSIZE of 1.0 MiB");
	SAYS("LimitFSIZE=");
}

/* ---- cancel ----------------------------------------------------------- */

static json_t *first_job(struct gpuwmd *d)
{
	json_t *answer = query(d->admin, "jobs", "1"),
	       *job = json_incref(json_array_get(json_object_get(answer, "jobs"), 0));

	json_decref(answer);
	return job;
}

static bool job_is(struct gpuwmd *d, const char *state)
{
	json_t *job = first_job(d);
	bool is = strcmp(json_string_value(json_object_get(job, "state")), state) == 0;

	json_decref(job);
	return is;
}

/* By the log of the stand-in. */
static bool has_hung(const char *path, const char *function)
{
	char line[256], name[128];
	FILE *file = fopen(path, "re");
	bool hung = false;
	int result;

	while (file && !hung && fgets(line, sizeof line, file))
		hung = sscanf(line, "%*d %*s %127s %d", name, &result) == 2 && result == -1 &&
		       strcmp(name, function) == 0;
	if (file)
		fclose(file);
	return hung;
}

/* A load hangs in this call of the driver; the phase that it was in when it was cancelled. */
static void cancel_in(const char *function, char ret_phase[64])
{
	struct gpuwmd *d, scratch; /* loaders write to the log until they are gone, each opens it anew */
	char rule[128], log[128];
	uint64_t job;
	json_t *told;

	folder_make(&scratch);
	snprintf(log, sizeof log, "%s/calls", scratch.dir);
	snprintf(rule, sizeof rule, "%s:1", function);
	setenv("FAKECUDA_LOG", log, 1);
	d = start_with("FAKECUDA_HANG", rule);
	unsetenv("FAKECUDA_LOG");
	OK(load_start(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1", NULL, &job));
	cr_assert(EVENTUALLY(10000, has_hung(log, function)), "no call of %s", function);
	cr_assert(job_is(d, "running"), "%s", function);
	OK(gpuwm_job_cancel(d->admin, job));
	FAILS(ECANCELED, gpuwm_job_wait(d->admin, job, 20000));
	told = first_job(d);
	snprintf(ret_phase, 64, "%s", json_string_value(json_object_get(told, "phase")));
	json_decref(told);
	left_nothing(d);
	harness_cleanup();
}

Test(load_faults, a_load_is_cancelled_wherever_it_hangs)
{
	static const char *const functions[] = {"cuDevicePrimaryCtxRetain", "cuMemCreate",
						"cuMemHostRegister_v2", "cuMemcpyHtoDAsync_v2",
						"cuLaunchKernel"};
	char phases[sizeof functions / sizeof functions[0]][64];
	unsigned distinct = 0;

	ON_FAKECUDA();
	for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
		bool known = false;

		cancel_in(functions[i], phases[i]);
		printf("cancelled in %s, while %s\n", functions[i], phases[i]);
		for (size_t k = 0; k < i; k++)
			known |= strcmp(phases[i], phases[k]) == 0;
		distinct += !known;
	}
	cr_assert_geq(distinct, 3);
}
