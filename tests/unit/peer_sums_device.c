/* Sums of pieces that the device computes: the kernel's arithmetic against OpenSSL's, and, where GPUWM_TEST_BACKEND says so, on
 * tests/fakecuda, with and without its kernel. */
#include "peer/sums.h"
#include "tests/support/any/child.h"
#include "tests/support/any/pieces.h"
#include "tests/support/lib/kernel.h"

#include "../../memory/kernels/sha256_thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define AREA MIB(12)

static struct memory_device device;
static struct memory_segment segment;
static struct error error;
static uint8_t *data;

static void fill(void)
{
	data = aligned_alloc(4096, AREA);
	for (uint64_t i = 0; i < AREA; i++)
		data[i] = (uint8_t)(i * 31 + i / 65536 * 7);
}

static void begin(void)
{
	fill();
	pieces_begin(&device, &segment, 1, data, AREA);
}

static void end(void)
{
	pieces_end(&device, &segment, 1);
	free(data);
}

TestSuite(sums_device, .timeout = 120);

/* ---- the kernel's own arithmetic ------------------------------------------- */

static void expect_sha256(const uint8_t *bytes, size_t count)
{
	struct sha256_sum is = sha256_of(&(struct sha256_leaf){(uintptr_t)bytes, count});
	struct sum expected;

	cr_assert_eq(sums_plain(bytes, count, &expected), 0);
	cr_expect_arr_eq(is.bytes, expected.bytes, SUM_BYTES, "%zu bytes", count);
}

Test(sums_device, the_kernel_computes_sha256_of_any_length)
{
	fill();
	for (size_t bytes = 0; bytes < 260; bytes++)
		expect_sha256(data, bytes);
	for (size_t bytes = SUMS_LEAF_BYTES - 70; bytes <= SUMS_LEAF_BYTES; bytes++)
		expect_sha256(data + SUMS_LEAF_BYTES, bytes);
	free(data);
}

/* ---- sums ------------------------------------------------------------------- */

static int sum(uint64_t bytes, struct sum *ret)
{
	return sums_memory(&device, &(struct memory_span){segment.address, bytes},
			   &(struct sums_options){.threads = 2}, ret, &error);
}

static void expect_sums(uint64_t bytes)
{
	struct sum sums[AREA / SUMS_PIECE_BYTES], expected;

	cr_assert_eq(sum(bytes, sums), 0, "%s", error.message);
	for (uint64_t i = 0; i < sums_piece_count(bytes); i++) {
		cr_assert_eq(sums_piece(data + i * SUMS_PIECE_BYTES, sums_piece_bytes(bytes, i), &expected), 0);
		cr_expect(sum_equal(&sums[i], &expected), "piece %lu of %lu bytes", i, bytes);
	}
}

static void expect_all_sums(void)
{
	static const uint64_t lengths[] = {
		AREA, AREA - 1, MIB(4), MIB(4) + 1, MIB(8) - SUMS_LEAF_BYTES, SUMS_LEAF_BYTES + 5, 63, 1, 0};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
		expect_sums(lengths[i]);
}

Test(sums_device, are_those_of_the_cpu)
{
	begin();
	expect_all_sums();
	end();
}

Test(sums_device, are_there_only_where_the_cpu_does_not_read_the_memory)
{
	struct sums_device *sums = NULL;

	begin();
	cr_expect_eq(sums_device_open(&device, &sums, &error), on_gpu() ? 0 : 1);
	sums_device_close(sums);
	end();
}

static int stop(uint64_t bytes, void *user_data)
{
	(void)bytes;
	(void)user_data;
	return 1;
}

Test(sums_device, end_when_they_are_not_wanted_any_more)
{
	struct sum sums[AREA / SUMS_PIECE_BYTES];

	begin();
	cr_expect_eq(sums_memory(&device, &(struct memory_span){segment.address, AREA},
				 &(struct sums_options){.progress = stop}, sums, &error),
		     -ECANCELED);
	end();
}

Test(sums_device, are_computed_by_the_cpu_without_the_kernel)
{
	if (!on_gpu())
		return;
	setenv("FAKECUDA_FAIL", "cuModuleLoadData:0:222", 1);
	begin();
	expect_all_sums();
	end();
}

/* As if the GPU had no room for the lists. */
Test(sums_device, are_computed_by_the_cpu_without_room)
{
	if (!on_gpu())
		return;
	setenv("FAKECUDA_FAIL", "cuMemAlloc_v2:1:2", 1);
	begin();
	expect_sums(AREA);
	end();
}

static int sum_failing(const char *failing)
{
	struct sum sums[AREA / SUMS_PIECE_BYTES];
	int r;

	setenv("FAKECUDA_FAIL", failing, 1);
	begin();
	r = sum(AREA, sums);
	end();
	return r == -EIO && strstr(error.message, "CUDA_ERROR_UNKNOWN") ? 0 : 1;
}

Test(sums_device, fail_cleanly_whatever_call_does)
{
	static const char *const failing[] = {"cuMemAlloc_v2:1:999",        "cuStreamCreate:1:999",
					      "cuMemcpyHtoDAsync_v2:1:999", "cuLaunchKernel:1:999",
					      "cuMemcpyDtoHAsync_v2:1:999", "cuStreamSynchronize:2:999"};

	if (!on_gpu())
		return;
	for (size_t i = 0; i < sizeof(failing) / sizeof(failing[0]); i++)
		cr_expect_eq(IN_CHILD(sum_failing(failing[i])), 0, "%s", failing[i]);
}
