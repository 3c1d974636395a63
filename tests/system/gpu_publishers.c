/* Publishers that lie about GPU memory, on a real driver too; and hanging ones, on its stand-in. */
#include "raw.h"

#ifdef GPUWM_CUDA
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(gpu_publishers);

#define SEGMENT MB(2)

/* By dlopen, as the test's program must start without a driver. */
#define DRIVER(name) ((__typeof__(name) *)dlsym(driver, #name))

/* A descriptor of that many bytes of the first GPU's memory, whatever they hold. */
static int gpu_memory(uint64_t bytes)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	CUmemGenericAllocationHandle handle;
	int fd;

	cr_assert(driver && DRIVER(cuInit)(0) == CUDA_SUCCESS);
	cr_assert_eq(DRIVER(cuMemCreate)(&handle, bytes, &properties, 0), CUDA_SUCCESS);
	cr_assert_eq(
		DRIVER(cuMemExportToShareableHandle)(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		CUDA_SUCCESS);
	DRIVER(cuMemRelease)(handle);
	return fd;
}

/* Of this backend's GPU, or a memfd. */
static void refused(bool gpu, uint64_t bytes, const char *words)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct raw_publish p;
	int code;

	cr_assert_eq(raw_publish_begin_on(&p, "m@v1", d->device, SEGMENT), 0, "%s", raw_refusal());
	raw_publish_fill(&p);
	close(p.segment);
	p.segment = gpu ? gpu_memory(bytes) : raw_memfd(bytes, true);
	code = raw_hand_in(&p);
	if (code == 0)
		code = raw_commit(&p);
	cr_assert_eq(code, -EBADMSG, "%d: %s", code, raw_refusal());
	cr_assert(strstr(raw_refusal(), words), "%s", raw_refusal());
	raw_publish_end(&p);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "failed")));
	gpuwmd_stop_empty(d);
}

Test(gpu_publishers, a_wrong_digest_is_named)
{
	SKIP_UNLESS(backend() != BACKEND_HOST, "needs a GPU");
	refused(true, SEGMENT, "tensor");
}

Test(gpu_publishers, more_than_was_said)
{
	SKIP_UNLESS(backend() != BACKEND_HOST, "needs a GPU");
	refused(true, 2 * SEGMENT, "2097152");
}

Test(gpu_publishers, a_memfd_is_no_gpu_memory)
{
	SKIP_UNLESS(backend() != BACKEND_HOST, "needs a GPU");
	refused(false, SEGMENT, "segment 0");
}

GPUWMD_TEST_IF(gpu_publishers, gpu_memory_is_no_memfd,
	       SKIP_UNLESS(backend() == BACKEND_CUDA, "the stand-in's memory is memfds"), gpuwmd_start(NULL),
	       gpuwmd_stop_empty)
{
	struct raw_publish p;
	int code;

	cr_assert_eq(raw_publish_begin(&p, "m@v1", SEGMENT), 0, "%s", raw_refusal());
	raw_publish_fill(&p);
	close(p.segment);
	p.segment = gpu_memory(SEGMENT);
	code = raw_hand_in(&p);
	if (code == 0)
		code = raw_commit(&p);
	cr_assert_eq(code, -EBADMSG, "%d: %s", code, raw_refusal());
	raw_publish_end(&p);
}

/* ---- a driver that hangs ---------------------------------------------- */

/* How bytes are checked: read back on the CPU where there is no nvcc, else by the kernel. */
#define HANGS_CHECKING "cuMemcpyDtoH_v2:1,cuLaunchKernel:1"
/* Where a load is: making a context beside all else, allocating, pinning, zeroing, copying, checking. */
static const char *const hangs[] = {"cuDevicePrimaryCtxRetain:1", "cuMemCreate:1",
				    "cuMemHostRegister_v2:1",     "cuMemsetD8_v2:1",
				    "cuMemcpyHtoDAsync_v2:2",     HANGS_CHECKING};

static struct gpuwmd *start_hanging(const char *call)
{
	struct gpuwmd *d;

	setenv("FAKECUDA_HANG", call, 1);
	setenv("FAKECUDA_FAIL_ONLY", "gpuwm-loader", 1);
	d = gpuwmd_start("--set", "limits.check_stall_ms=500", NULL);
	unsetenv("FAKECUDA_HANG");
	unsetenv("FAKECUDA_FAIL_ONLY");
	return d;
}

/* The job's phase is one in which it hangs: it has told of progress and goes on no more. */
static void job_hangs(struct gpuwmd *d, uint64_t *ret_job)
{
	OK(load_start(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1", NULL, ret_job));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "publishes") == 1));
	FAILS(ETIMEDOUT, gpuwm_job_wait(d->admin, *ret_job, 300));
}

Test(gpu_publishers, a_loader_that_hangs_in_the_driver_can_be_cancelled)
{
	ON_FAKECUDA();
	for (unsigned i = 0; i < sizeof hangs / sizeof hangs[0]; i++) {
		struct gpuwmd *d = start_hanging(hangs[i]);
		uint64_t job;

		job_hangs(d, &job);
		OK(gpuwm_ping(d->admin, NULL));
		OK(gpuwm_job_cancel(d->admin, job));
		FAILS(ECANCELED, gpuwm_job_wait(d->admin, job, 10000));
		gpuwmd_stop_empty(d);
		harness_cleanup();
	}
}

Test(gpu_publishers, a_loader_killed_in_each_phase_leaves_nothing)
{
	ON_FAKECUDA();
	for (unsigned i = 0; i < sizeof hangs / sizeof hangs[0]; i++) {
		struct gpuwmd *d = start_hanging(hangs[i]);
		pid_t loaders[CHILDREN_MAX];
		uint64_t job;

		/* The one that stands by gets the job; the next one is left alone. */
		cr_assert_eq(loaders_of(d->pid, loaders), 1);
		job_hangs(d, &job);
		cr_assert_eq(kill(loaders[0], SIGKILL), 0);
		FAILS(EIO, gpuwm_job_wait(d->admin, job, 10000));
		cr_assert(EVENTUALLY(SOON_MS, memory_of(d) == 0 && status_of(d, "publishes") == 0));
		gpuwmd_stop_empty(d);
		harness_cleanup();
	}
}

FAKECUDA_TEST(gpu_publishers, a_checker_that_hangs_times_out, start_hanging(HANGS_CHECKING), gpuwmd_stop_empty)
{
	FAILS(ETIMEDOUT, publish_version(d->admin, d->device, "m@v1", SMALL(1)));
	cr_assert(version_is(d, "m", "v1", "failed"));
}
#endif
