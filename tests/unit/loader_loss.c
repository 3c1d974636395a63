/* What counts as the loss of a GPU, and what does not: on tests/fakecuda, whose device 0 is taken away. */
#include "loader/devices/loss.h"
#include "tests/support/any/own_folder.h"

#include <criterion/criterion.h>

#ifdef GPUWM_CUDA

#include "memory/cuda.h"
#include "memory/memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPU0 "GPU-fa4e0000-0000-4000-8000-000000000000"
#define GPU1 "GPU-fa4e0000-0000-4000-8000-000000000001"

static char path[64];
static struct error why;

static void set_up(void)
{
	char run[32];

	if (!strstr(getenv("LD_LIBRARY_PATH") ? getenv("LD_LIBRARY_PATH") : "", "fakecuda"))
		cr_skip_test("runs on tests/fakecuda only");
	snprintf(run, sizeof(run), "loss%d", (int)getpid());
	snprintf(path, sizeof(path), "%s/loss", own_folder());
	setenv("FAKECUDA_RUN", run, 1);
	setenv("FAKECUDA_LOST", path, 1);
	why = (struct error){0};
}

TestSuite(loss, .init = set_up);

static void gpu0_is(const char *how)
{
	FILE *file = fopen(path, "we");

	cr_assert(file && fprintf(file, "0 %s\n", how) > 0 && fclose(file) == 0);
}

static void expect_lost(bool lost, const char *words)
{
	cr_assert(lost, "%s", why.message);
	cr_expect_eq(why.code, -ENODEV);
	cr_expect(strstr(why.message, words), "%s", why.message);
}

/* As a process that began before. */
static void open_driver(void)
{
	const struct cuda_driver *cuda;

	cr_assert_eq(cuda_open(&cuda, &why), 0, "%s", why.message);
}

Test(loss, is_not_seen_of_a_gpu_that_is_there)
{
	cr_expect_not(loss_is_seen(GPU0, &why));
	cr_expect_not(loss_is_met(GPU0, &why));
	cr_expect_eq(loss_examine(GPU0, &why), 0, "%s", why.message);
}

Test(loss, is_of_gpus_alone)
{
	cr_expect(loss_is_possible(GPU0));
	cr_expect_not(loss_is_possible("host"));
	cr_expect_not(loss_is_possible("no name of a device"));
	cr_expect_not(loss_is_seen("host", &why));
}

Test(loss, is_what_nvml_calls_so)
{
	open_driver();
	gpu0_is("bus");
	expect_lost(loss_is_seen(GPU0, &why), "fallen off the bus");
	expect_lost(loss_is_met(GPU0, &why), "fallen off the bus");
	cr_expect_not(loss_is_seen(GPU1, &why));
	cr_expect_eq(loss_examine(GPU0, &why), -ENODEV);
}

Test(loss, is_a_reset_that_nvml_asks_for)
{
	setenv("FAKECUDA_FAIL", "nvmlDeviceGetMemoryInfo:1:16", 1);
	expect_lost(loss_is_seen(GPU0, &why), "needs a reset");
}

Test(loss, is_met_where_the_driver_gives_no_context)
{
	gpu0_is("unavailable");
	cr_expect_not(loss_is_seen(GPU0, &why), "NVML has nothing to say");
	expect_lost(loss_is_met(GPU0, &why), "CUDA_ERROR_DEVICE_UNAVAILABLE");
	cr_expect_not(loss_is_met(GPU1, &why));
}

Test(loss, is_an_ecc_error_of_the_jobs_context)
{
	struct memory_device device;

	cr_assert_eq(memory_device_open(GPU0, &device, &why), 0);
	cr_assert_eq(device.ops->hold(&device, &why), 0);
	gpu0_is("ecc");
	cr_expect_not(loss_is_seen(GPU0, &why));
	expect_lost(loss_is_met(GPU0, &why), "CUDA_ERROR_ECC_UNCORRECTABLE");
	device.ops->unhold(&device);
}

Test(loss, is_a_gpu_that_neither_cuda_nor_nvml_knows)
{
	gpu0_is("absent");
	expect_lost(loss_is_seen(GPU0, &why), "knows no such device any more");
}

Test(loss, is_a_gpu_that_was_divided)
{
	gpu0_is("mig");
	expect_lost(loss_is_seen(GPU0, &why), "divided into MIG devices");
}

/* ---- what is none ----------------------------------------------------- */

Test(loss, is_none_where_the_process_may_not_see_the_gpu)
{
	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	cr_expect_not(loss_is_seen(GPU0, &why));
	cr_expect_not(loss_is_met(GPU0, &why));
	cr_expect_lt(loss_examine(GPU0, &why), 0, "but it is of no use to this process");
}

Test(loss, is_none_without_nvmls_word_that_the_gpu_is_gone)
{
	setenv("FAKECUDA_FAIL", "nvmlInit_v2:1:9", 1);
	gpu0_is("absent");
	cr_expect_not(loss_is_seen(GPU0, &why));
	cr_expect_not(loss_is_met(GPU0, &why));
}

Test(loss, is_none_where_the_driver_itself_fails)
{
	setenv("FAKECUDA_FAIL", "cuInit:1:803", 1); /* a driver of another version: an upgrade */
	gpu0_is("absent");
	cr_expect_not(loss_is_seen(GPU0, &why));
	cr_expect_not(loss_is_met(GPU0, &why));
}

Test(loss, is_no_error_of_one_context)
{
	setenv("FAKECUDA_FAIL", "cuCtxSynchronize:1:700", 1);
	cr_expect_not(loss_is_met(GPU0, &why));
}

/* In exclusive mode: the stand-in's attribute says so by failing. */
Test(loss, is_none_where_contexts_are_not_shared)
{
	setenv("FAKECUDA_FAIL", "cuDevicePrimaryCtxRetain:0:46,cuDeviceGetAttribute:0:1", 1);
	cr_expect_not(loss_is_met(GPU0, &why));
	cr_expect_eq(loss_examine(GPU0, &why), -ENODEV, "though it is of no use now");
}

Test(loss, is_over_when_memory_holds_what_is_written)
{
	setenv("FAKECUDA_FLIP", "1", 1);
	cr_expect_eq(loss_examine(GPU0, &why), -ENODEV);
	cr_expect(strstr(why.message, "does not hold what is written"), "%s", why.message);
	cr_expect_eq(loss_examine(GPU0, &why), 0, "%s", why.message);
}

/* ---- results ---------------------------------------------------------- */

Test(loss, is_a_code_of_its_own_whatever_failed)
{
	open_driver();
	cr_expect_eq(cuda_fail(CUDA_ERROR_ECC_UNCORRECTABLE, -EIO, &why, "a copy"), -ENODEV);
	cr_expect_eq(cuda_fail(CUDA_ERROR_NVLINK_UNCORRECTABLE, -EBADMSG, &why, "a copy"), -ENODEV);
	cr_expect_eq(cuda_fail(CUDA_ERROR_DEVICE_UNAVAILABLE, -ENOMEM, &why, "a copy"), -ENODEV);
	cr_expect_eq(cuda_fail(CUDA_ERROR_ILLEGAL_ADDRESS, -EIO, &why, "a copy"), -EIO);
	cr_expect_eq(cuda_fail(CUDA_ERROR_LAUNCH_FAILED, -EIO, &why, "a copy"), -EIO);
	cr_expect_eq(cuda_fail(CUDA_ERROR_UNKNOWN, -EBADMSG, &why, "a copy"), -EBADMSG);
}

#endif
