/* Comparing memory byte by byte: on the host and, where GPUWM_TEST_BACKEND says so, on tests/fakecuda, with and without its kernel. */
#include "tests/support/any/child.h"
#include "tests/support/lib/kernel.h"
#include "tests/support/any/pieces.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the kernel's own arithmetic, thread by thread ----------------------- */

#include "../../memory/kernels/compare_thread.h"

static bool block_differs(const void *a, const void *b, uint64_t bytes)
{
	struct compare_piece piece = {(uintptr_t)a, (uintptr_t)b, bytes};
	uint32_t bits = 0;

	for (uint32_t thread = 0; thread < COMPARE_THREADS; thread++)
		bits |= thread_differs(&piece, thread);
	return bits != 0;
}

#define BLOCK_BYTES (3 * 16 * COMPARE_THREADS + 32)

Test(compare_kernel, finds_any_bit)
{
	static _Alignas(16) uint8_t a[BLOCK_BYTES + 16], b[BLOCK_BYTES + 16];

	cr_expect_not(block_differs(a, b, BLOCK_BYTES));
	for (size_t i = 0; i < BLOCK_BYTES; i++) {
		b[i] = (uint8_t)(1u << i % 8);
		cr_expect(block_differs(a, b, BLOCK_BYTES), "byte %zu", i);
		b[i] = 0;
	}
	b[BLOCK_BYTES] = 1;
	cr_expect_not(block_differs(a, b, BLOCK_BYTES), "what is behind it does not count");
	cr_expect_not(block_differs(a, b, 0));
}

/* ---- memory_compare -------------------------------------------------------- */

#define AREA MIB(36) /* more than two chunks of the CPU's */

static struct memory_device device;
static struct memory_segment segments[2];
static struct error error;

/* Two equal pieces of AREA bytes; inside the context. */
static void begin(void)
{
	uint8_t *bytes = malloc(AREA);

	for (uint64_t i = 0; i < AREA; i++)
		bytes[i] = (uint8_t)(i * 7 + i / 4096);
	pieces_begin(&device, segments, 2, bytes, AREA);
	free(bytes);
}

static void end(void)
{
	pieces_end(&device, segments, 2);
}

static void flip(uint64_t at)
{
	uint8_t *address = (uint8_t *)segments[1].address + at, byte;

	cr_assert_eq(device.ops->read(&device, &byte, address, 1, &error), 0);
	byte ^= 0x10;
	cr_assert_eq(device.ops->write(&device, address, &byte, 1, &error), 0);
}

static uint64_t told;
static uint64_t stop_at; /* 0: never */

static int count(uint64_t bytes, void *user_data)
{
	(void)user_data;
	told += bytes;
	return stop_at && told >= stop_at ? -ECANCELED : 0;
}

/* 1: equal; 0: not; or the error. */
static int compare(uint64_t bytes)
{
	const struct memory_pair pair = {segments[0].address, segments[1].address, bytes};
	bool equal = false;
	int r = memory_compare(&device, &pair, count, NULL, &equal, &error);

	return r < 0 ? r : equal;
}

static void expect_compared(void)
{
	static const uint64_t places[] = {0, 1, 15, MIB(16) - 1, MIB(16), MIB(2), AREA - 1};

	told = 0;
	cr_expect_eq(compare(AREA), 1);
	cr_expect_eq(told, AREA);
	cr_expect_eq(compare(0), 1);
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		flip(places[i]);
		cr_expect_eq(compare(AREA), 0, "byte %lu", places[i]);
		flip(places[i]);
	}
	flip(MIB(8));
	cr_expect_eq(compare(MIB(8)), 1, "what is behind it does not count");
	flip(MIB(8));
	cr_expect_eq(compare(AREA), 1);
}

TestSuite(compare, .timeout = 120);

Test(compare, finds_a_difference_anywhere)
{
	begin();
	expect_compared();
	end();
}

Test(compare, stops_when_it_is_told_to)
{
	begin();
	told = 0;
	stop_at = 1;
	cr_expect_eq(compare(AREA), -ECANCELED);
	end();
}

/* The driver reads once in a process what is to fail. */
Test(compare, reads_back_without_the_kernel)
{
	if (!on_gpu())
		return;
	setenv("FAKECUDA_FAIL", "cuModuleLoadData:0:222", 1);
	begin();
	expect_compared();
	end();
}

static int compare_failing(const char *failing)
{
	int r;

	setenv("FAKECUDA_FAIL", failing, 1);
	begin();
	r = compare(AREA);
	end();
	return r == -EIO && strstr(error.message, "CUDA_ERROR_UNKNOWN") ? 0 : 1;
}

Test(compare, fails_cleanly_whatever_call_does)
{
	static const char *const failing[] = {"cuMemAlloc_v2:1:999",        "cuStreamCreate:1:999",
					      "cuMemcpyHtoDAsync_v2:1:999", "cuMemsetD8Async:1:999",
					      "cuLaunchKernel:1:999",       "cuMemcpyDtoHAsync_v2:1:999",
					      "cuStreamSynchronize:3:999"};

	if (!on_gpu())
		return;
	for (size_t i = 0; i < sizeof(failing) / sizeof(failing[0]); i++)
		cr_expect_eq(IN_CHILD(compare_failing(failing[i])), 0, "%s", failing[i]);
}
