/* What a load to GPUs needs besides memory: on tests/fakecuda. */
#include "loader/prepare.h"

#include "memory/memory.h"
#include "loader/copy/copy.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct error error;
static const char *devices[2];
static struct prepare_for job = {.devices = devices};
static struct prepare *prepare;

static void job_for(const char *first, const char *second)
{
	job.count = second ? 2 : 1;
	devices[0] = first;
	devices[1] = second;
}

static int go_on(uint64_t bytes, void *user_data)
{
	cr_assert_eq(bytes, 0);
	return *(int *)user_data;
}

static int wait_with(int answer)
{
	return prepare_wait(prepare, go_on, &answer, &error);
}

Test(prepare, needs_nothing_for_host)
{
	job_for("host", NULL);
	cr_assert_eq(prepare_start(&job, &prepare, &error), 0, "%s", error.message);
	cr_assert_null(prepare);
	cr_assert_eq(prepare_buffers(prepare, 1, &error), 0);
	cr_assert_eq(wait_with(0), 0);
	cr_assert_null(prepare_ring(prepare));
	cr_assert_null(prepare_end(prepare));
}

Test(prepare, gives_each_of_several_gpus_a_part_of_a_piece)
{
	cr_expect_eq(copy_chunk(1), COPY_CHUNK_BYTES);
	cr_expect_eq(copy_chunk(2), MIB(1));
	cr_expect_eq(copy_chunk(4), MIB(2));
	cr_expect_eq(copy_chunk(8), COPY_CHUNK_BYTES);
	cr_expect_eq(copy_chunk(16), COPY_CHUNK_BYTES);
}

#ifdef GPUWM_CUDA

#include "memory/cuda.h"
#include "tests/support/any/fd_count.h"
#include "tests/support/any/own_folder.h"

#define GPU0 "GPU-fa4e0000-0000-4000-8000-000000000000"
#define GPU1 "GPU-fa4e0000-0000-4000-8000-000000000001"

static void started(const char *variable, const char *value)
{
	const char *backend = getenv("GPUWM_TEST_BACKEND");
	char run[32];

	if (!backend || strcmp(backend, "fakecuda") != 0)
		cr_skip_test("needs the stand-in for the driver");
	snprintf(run, sizeof(run), "prepare%d", getpid());
	setenv("FAKECUDA_RUN", run, 1);
	setenv("FAKECUDA_CONTEXT", "64M", 1);
	if (variable)
		setenv(variable, value, 1);
	cr_assert_eq(prepare_start(&job, &prepare, &error), 0, "%s", error.message);
}

static bool context_active(int ordinal)
{
	const struct cuda_driver *cuda;
	unsigned flags;
	int active = 0;

	cr_assert_eq(cuda_open(&cuda, &error), 0);
	cuda->cuDevicePrimaryCtxGetState(ordinal, &flags, &active);
	return active;
}

Test(prepare, makes_contexts_and_a_pinned_ring)
{
	int before;

	job_for(GPU0, GPU1);
	started(NULL, NULL);
	cr_assert_eq(prepare_buffers(prepare, COPY_CHUNK_BYTES + 1, &error), 0);
	cr_assert_eq(wait_with(0), 0, "%s", error.message);
	cr_assert(context_active(0) && context_active(1));
	cr_assert(prepare_ring(prepare)->pinned);
	cr_assert_eq(prepare_ring(prepare)->count, 2, "no more buffers than there are pieces");
	before = fd_count();
	prepare = prepare_end(prepare);
	cr_assert_not(context_active(0) || context_active(1));
	cr_assert_eq(fd_count(), before - 2, "each context had device memory");
}

Test(prepare, bounds_what_the_buffers_take)
{
	job_for(GPU0, NULL);
	started(NULL, NULL);
	cr_assert_eq(prepare_buffers(prepare, GIB(40), &error), 0);
	cr_assert_eq(wait_with(0), 0, "%s", error.message);
	cr_assert_geq(prepare_ring(prepare)->count, 16);
	cr_assert_leq(prepare_ring(prepare)->bytes, RING_BYTES_MAX + MIB(1));
	prepare = prepare_end(prepare);
}

static void ready_for(uint64_t bytes)
{
	cr_assert_eq(prepare_buffers(prepare, bytes, &error), 0, "%s", error.message);
	cr_assert_eq(wait_with(0), 0, "%s", error.message);
}

Test(prepare, has_small_buffers_for_a_cut_over_several_gpus)
{
	job_for(GPU0, GPU1);
	job.apart = true;
	started(NULL, NULL);
	cr_assert_eq(prepare_chunk(prepare), 2 * COPY_CHUNK_EACH_BYTES);
	ready_for(GIB(40));
	cr_assert_eq(prepare_ring(prepare)->chunk, copy_buffer_bytes(2 * COPY_CHUNK_EACH_BYTES));
	cr_assert_leq(prepare_ring(prepare)->bytes, RING_BYTES_MAX);
	prepare = prepare_end(prepare);
}

Test(prepare, has_the_usual_buffers_for_a_cut_on_one_gpu)
{
	job_for(GPU0, GPU0);
	job.apart = true;
	started(NULL, NULL);
	cr_assert_eq(prepare_chunk(prepare), COPY_CHUNK_BYTES);
	prepare = prepare_end(prepare);
}

Test(prepare, makes_other_buffers_if_those_that_were_kept_have_another_size)
{
	job_for(GPU0, GPU1);
	started(NULL, NULL);
	ready_for(GIB(40));
	cr_assert_eq(prepare_keep(prepare, &error), 0, "%s", error.message);
	job.apart = true;
	cr_assert_eq(prepare_start(&job, &prepare, &error), 0, "%s", error.message);
	ready_for(1);
	cr_assert_eq(prepare_ring(prepare)->chunk, copy_buffer_bytes(2 * COPY_CHUNK_EACH_BYTES));
	cr_assert(prepare_ring(prepare)->pinned);
	prepare = prepare_end(prepare);
}

/* Calls that made or held a context so far. */
static unsigned retains(const char *log)
{
	FILE *file = fopen(log, "re");
	unsigned count = 0;
	char line[128];

	cr_assert_not_null(file);
	while (fgets(line, sizeof(line), file))
		count += strstr(line, "cuDevicePrimaryCtxRetain") != NULL;
	fclose(file);
	return count;
}

Test(prepare, makes_one_context_for_a_gpu_that_is_named_twice)
{
	unsigned once;
	char log[64];

	snprintf(log, sizeof(log), "%s/prepare", own_folder());
	job_for(GPU1, NULL);
	started("FAKECUDA_LOG", log);
	cr_assert_eq(wait_with(0), 0, "%s", error.message);
	prepare = prepare_end(prepare);
	once = retains(log);
	job_for(GPU1, GPU1);
	cr_assert_eq(prepare_start(&job, &prepare, &error), 0, "%s", error.message);
	cr_assert_eq(wait_with(0), 0, "%s", error.message);
	prepare = prepare_end(prepare);
	cr_assert_eq(retains(log), 2 * once);
	cr_assert_not(context_active(1));
	cr_assert_eq(unlink(log), 0);
}

Test(prepare, tells_that_there_is_no_room_for_a_context)
{
	job_for(GPU0, GPU1);
	started("FAKECUDA_FAIL", "cuDevicePrimaryCtxRetain:2:2");
	cr_assert_eq(prepare_buffers(prepare, 1, &error), 0);
	cr_assert_eq(wait_with(0), -ENOSPC);
	cr_assert(strstr(error.message, "no room for a CUDA context"), "%s", error.message);
	prepare = prepare_end(prepare);
	cr_assert_not(context_active(0) || context_active(1));
}

Test(prepare, is_not_waited_for_after_a_cancel, .timeout = 120)
{
	job_for(GPU0, NULL);
	started("FAKECUDA_HANG", "cuDevicePrimaryCtxRetain:1");
	cr_assert_eq(wait_with(-ECANCELED), -ECANCELED);
	cr_assert_eq(error.code, 0, "who stopped it knows why");
	cr_assert(prepare_busy(prepare));
	/* What hangs in the driver can't be ended: the process is. */
}

Test(prepare, refuses_a_device_that_is_not_there)
{
	job_for(GPU0, NULL);
	started(NULL, NULL);
	prepare = prepare_end(prepare);
	job_for(GPU0, "GPU-00000000-0000-0000-0000-000000000000");
	cr_assert_eq(prepare_start(&job, &prepare, &error), -ENODEV, "%s", error.message);
	cr_assert_null(prepare);
	cr_assert_not(context_active(0));
}

#endif
