/* Digests of many pieces of memory at once, on host memory and, where GPUWM_TEST_BACKEND says so, on a GPU or
 * on tests/fakecuda: LD_LIBRARY_PATH says which. */
#include "tests/support/any/child.h"
#include "tests/support/lib/kernel.h"
#include "tests/support/any/pieces.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* ---- the kernel's own arithmetic, thread by thread ----------------------- */

#include "../../memory/kernels/digest_thread.h"

static struct digest_slot block_sum(const struct digest_piece *piece)
{
	struct digest_slot slot = {0};

	for (uint32_t thread = 0; thread < DIGEST_THREADS; thread++) {
		struct partial sum = thread_sum(piece, thread);

		slot.a += sum.a;
		slot.b += sum.b;
		slot.bits |= sum.bits;
	}
	return slot;
}

static uint64_t random_number(void)
{
	static uint64_t state = 88172645463325252;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void fill(void *data, size_t bytes)
{
	uint64_t word;

	for (size_t i = 0; i < bytes; i += 8) {
		word = random_number();
		memcpy((uint8_t *)data + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
}

/* Two pages between such as can't be touched: a load beyond the piece's words would be a signal. */
static uint8_t *fenced_pages(void)
{
	uint8_t *area = mmap(NULL, 4 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(area, MAP_FAILED);
	cr_assert_eq(mprotect(area + 4096, 2 * 4096, PROT_READ | PROT_WRITE), 0);
	fill(area + 4096, 2 * 4096);
	return area + 4096;
}

static void expect_block(const uint8_t *data, uint64_t first, uint32_t bytes)
{
	struct digest_piece piece = {.address = (uintptr_t)data, .first = first, .bytes = bytes};
	struct digest_slot slot = block_sum(&piece);
	struct digest_sum sum = {0};

	digest_update(&sum, 8 * first, data, bytes);
	cr_assert(sum.a == slot.a && sum.b == slot.b, "%u bytes at %p", bytes, (const void *)data);
}

Test(digest_kernel, is_the_digest_at_every_alignment_and_length)
{
	uint8_t *data = fenced_pages();

	for (uint32_t shift = 0; shift < 16; shift++)
		for (uint32_t bytes = 0; bytes <= 70; bytes++) {
			expect_block(data + shift, shift * bytes, bytes);
			expect_block(data + 8192 - shift - bytes, 0, bytes);
		}
	for (uint32_t shift = 0; shift < 16; shift++)
		expect_block(data + shift, 1ull << 40, 8192 - shift);
}

Test(digest_kernel, is_the_digest_of_whole_pieces)
{
	const uint32_t most = 300000;
	uint8_t *data = aligned_alloc(16, most + 64);

	fill(data, most + 64);
	for (uint32_t shift = 0; shift < 16; shift += 4)
		for (int i = 0; i < 20; i++)
			expect_block(data + shift, random_number() >> 8, (uint32_t)(random_number() % most));
	expect_block(data, 0, 256 << 10);
	free(data);
}

Test(digest_kernel, finds_every_bit_that_is_not_zero)
{
	uint8_t *data = aligned_alloc(16, 256);

	for (uint32_t shift = 0; shift < 16; shift += 5)
		for (int bit = 0; bit < 8 * 71; bit++) {
			struct digest_piece piece = {.address = (uintptr_t)data + shift, .bytes = 71};

			memset(data, 0, 256);
			cr_assert_eq(block_sum(&piece).bits, 0);
			data[shift + bit / 8] = (uint8_t)(1 << bit % 8);
			cr_assert_neq(block_sum(&piece).bits, 0, "bit %d", bit);
		}
	free(data);
}

/* ---- memory_digests -------------------------------------------------------- */

#define AREA MIB(24)

static struct memory_device device;
static struct memory_segment segment;
static uint8_t *copy; /* of the segment, on the CPU */
static struct memory_report report;
static struct error error;

/* AREA bytes of the device, mapped, of which the last MiB is zero; inside the context. */
static void begin(void)
{
	copy = calloc(1, AREA);
	fill(copy, AREA - MIB(1));
	pieces_begin(&device, &segment, 1, copy, AREA);
}

static void end(void)
{
	pieces_end(&device, &segment, 1);
	free(copy);
}

static struct memory_span span(uint64_t offset, uint64_t bytes)
{
	return (struct memory_span){(uint8_t *)segment.address + offset, bytes};
}

static void expect_sums(const struct memory_span *spans, size_t count, const struct memory_pace *pace)
{
	const struct memory_digest_options options = {.pace = pace, .ret_report = &report};
	struct memory_sum *sums = calloc(count, sizeof(*sums));

	cr_assert_eq(memory_digests(&device, spans, count, &options, sums, &error), 0, "%s", error.message);
	for (size_t i = 0; i < count; i++) {
		const uint8_t *data = copy + ((const uint8_t *)spans[i].address - (uint8_t *)segment.address);
		struct digest expected = digest_of(data, spans[i].bytes);
		bool zero = true;

		for (uint64_t at = 0; at < spans[i].bytes && zero; at++)
			zero = data[at] == 0;
		cr_assert(digest_equal(&sums[i].digest, &expected), "span %zu", i);
		cr_assert_eq(sums[i].zero, zero, "span %zu", i);
	}
	free(sums);
}

/* Every alignment with lengths of 0 to 70, then some of several MiB. */
static size_t many_spans(struct memory_span *spans)
{
	size_t count = 0;

	for (unsigned i = 0; i < 16 * 71; i++)
		spans[count++] = span(random_number() % (AREA - 256) / 16 * 16 + i % 16, i / 16);
	for (unsigned i = 0; i < 8; i++)
		spans[count++] = span(random_number() % MIB(8), random_number() % MIB(4));
	spans[count++] = span(AREA - MIB(1), MIB(1));
	spans[count++] = span(AREA - MIB(1) - 1, MIB(1));
	spans[count++] = span(0, AREA);
	return count;
}

/* Which path it takes is told, where there is something to tell. */
static void expect_kernel(bool kernel)
{
	cr_expect_eq(report.note[0] == '\0', kernel, "%s", report.note);
}

static bool built_with_kernels(void)
{
	struct memory_span one = span(0, 8);

	expect_sums(&one, 1, NULL);
	return !strstr(report.note, "built without nvcc");
}

TestSuite(digests, .timeout = 300);

Test(digests, are_those_of_the_definition)
{
	struct memory_span spans[16 * 71 + 16];

	begin();
	expect_sums(spans, many_spans(spans), NULL);
	expect_kernel(built_with_kernels());
	end();
}

Test(digests, of_nothing_are_none)
{
	begin();
	expect_sums(NULL, 0, NULL);
	end();
}

Test(digests, of_more_spans_than_a_batch_takes)
{
	const size_t count = 40000;
	struct memory_span *spans = calloc(count, sizeof(*spans));

	begin();
	for (size_t i = 0; i < count; i++)
		spans[i] = span(random_number() % (AREA - 512), random_number() % 300);
	expect_sums(spans, count, NULL);
	free(spans);
	end();
}

Test(digests, do_not_mind_where_a_pace_cuts)
{
	struct memory_pace pace = {.chunk = 4096 + 24, .permille = 1000};
	struct memory_span spans[] = {span(0, 0), span(0, 0), span(0, 0), span(0, 0)};

	begin();
	spans[0] = span(16, 100001);
	spans[1] = span(7, 4099);
	spans[2] = span(AREA - 50000, 50000);
	spans[3] = span(8, 20);
	expect_sums(spans, 4, &pace);
	end();
}

/* A pace of one twentieth takes twenty times as long. */
Test(digests, rest_as_the_pace_says)
{
	struct memory_pace pace = {.chunk = MIB(1), .permille = 50};
	struct timespec before, after;
	struct memory_span all;
	double seconds;

	begin();
	all = span(0, AREA);
	clock_gettime(CLOCK_MONOTONIC, &before);
	expect_sums(&all, 1, &pace);
	clock_gettime(CLOCK_MONOTONIC, &after);
	seconds = (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) * 1e-9;
	cr_expect_geq(seconds, report.seconds * 20, "%f s for %f s of work", seconds, report.seconds);
	end();
}

/* Enough for several threads, where there are several CPUs. */
Test(digests, of_much_host_memory)
{
	const size_t bytes = MIB(160) + 5;
	struct memory_span spans[2];
	struct memory_sum sums[2];
	struct digest expected;
	uint8_t *data;

	if (on_gpu())
		return;
	cr_assert_eq(memory_device_open("host", &device, &error), 0);
	data = malloc(bytes);
	fill(data, MIB(1));
	for (size_t done = MIB(1); done < bytes; done += MIB(1))
		memcpy(data + done, data, bytes - done < MIB(1) ? bytes - done : MIB(1));
	spans[0] = (struct memory_span){data, 1000};
	spans[1] = (struct memory_span){data + 1, bytes - 1};
	expected = digest_of(data + 1, bytes - 1);
	cr_assert_eq(memory_digests(&device, spans, 2, NULL, sums, &error), 0);
	cr_expect(digest_equal(&sums[1].digest, &expected));
	free(data);
}

struct told {
	uint64_t bytes, stop_at;
	unsigned calls;
	pthread_t by;
};

static int tell(uint64_t bytes, void *user_data)
{
	struct told *told = user_data;

	cr_assert(pthread_equal(told->by, pthread_self()));
	told->bytes += bytes;
	told->calls++;
	return told->bytes >= told->stop_at;
}

Test(digests, tell_every_byte_once_and_stop_when_told)
{
	struct memory_span spans[16 * 71 + 16];
	struct memory_sum sums[16 * 71 + 16];
	struct told told = {.stop_at = UINT64_MAX, .by = pthread_self()};
	const struct memory_digest_options options = {.progress = tell, .user_data = &told};
	uint64_t bytes = 0;
	size_t count;

	begin();
	count = many_spans(spans);
	for (size_t i = 0; i < count; i++)
		bytes += spans[i].bytes;
	cr_assert_eq(memory_digests(&device, spans, count, &options, sums, &error), 0);
	cr_expect_eq(told.bytes, bytes);
	told.bytes = 0;
	told.stop_at = 1;
	cr_expect_eq(memory_digests(&device, spans, count, &options, sums, &error), -ECANCELED);
	end();
}

Test(digests, stop_while_they_rest)
{
	struct memory_pace pace = {.chunk = MIB(4), .permille = 1};
	struct told told = {.stop_at = MIB(4), .by = pthread_self()};
	const struct memory_digest_options options = {.pace = &pace, .progress = tell, .user_data = &told};
	struct memory_span all;
	struct memory_sum sum;

	begin();
	all = span(0, AREA);
	cr_expect_eq(memory_digests(&device, &all, 1, &options, &sum, &error), -ECANCELED);
	cr_expect_eq(told.bytes, MIB(4));
	end();
}

/* ---- what a GPU can refuse: on tests/fakecuda only -------------------------- */

static bool begin_failing(const char *failing)
{
	if (!on_gpu())
		return false;
	setenv("FAKECUDA_FAIL", failing, 1);
	begin();
	return built_with_kernels();
}

static void expect_all_read_back(const char *says)
{
	struct memory_span spans[16 * 71 + 16];

	expect_sums(spans, many_spans(spans), NULL);
	cr_expect(strstr(report.note, says), "\"%s\" does not say \"%s\"", report.note, says);
	end();
}

Test(digests, take_the_ptx_where_the_code_is_not_for_this_gpu)
{
	struct memory_span one;

	if (!begin_failing("cuModuleLoadData:1:209"))
		return;
	one = span(3, 70000);
	expect_sums(&one, 1, NULL);
	expect_kernel(true);
	end();
}

Test(digests, read_back_where_the_driver_takes_no_image)
{
	if (begin_failing("cuModuleLoadData:0:222"))
		expect_all_read_back("CUDA_ERROR_UNSUPPORTED_PTX_VERSION");
}

Test(digests, read_back_where_the_kernel_is_not_found)
{
	if (begin_failing("cuModuleGetFunction:0:500"))
		expect_all_read_back("CUDA_ERROR_NOT_FOUND");
}

Test(digests, read_back_where_there_is_no_room_for_lists)
{
	if (begin_failing("cuMemAlloc_v2:0:2"))
		expect_all_read_back("no room for the kernel's lists");
}

Test(digests, find_the_kernel_again_in_the_next_context)
{
	struct memory_span one;

	begin();
	one = span(3, 70000);
	device.ops->digests_prepare(&device);
	expect_sums(&one, 1, NULL);
	device.ops->leave(&device);
	cr_assert_eq(device.ops->enter(&device, &error), 0);
	expect_sums(&one, 1, NULL);
	expect_kernel(built_with_kernels());
	end();
}

Test(digests, of_memory_that_is_not_there_fail)
{
	struct memory_span one;
	struct memory_sum sum;

	if (!begin_failing(""))
		return;
	one = span(AREA - 64, 128);
	cr_expect_eq(memory_digests(&device, &one, 1, NULL, &sum, &error), -EIO);
	cr_expect(strstr(error.message, "CUDA_ERROR_ILLEGAL_ADDRESS"), "%s", error.message);
	one = span(0, 128);
	cr_expect_lt(memory_digests(&device, &one, 1, NULL, &sum, &error), 0, "the error is sticky");
	end();
}

/* The driver reads once in a process what is to fail. 0: as it must be. */
static int digest_failing(const char *failing)
{
	const struct memory_digest_options options = {.ret_report = &report};
	struct memory_span spans[] = {span(0, 0), span(0, 0)};
	struct memory_sum sums[2];
	struct digest expected;
	int r;

	setenv("FAKECUDA_FAIL", failing, 1);
	begin();
	spans[0] = span(0, MIB(8));
	spans[1] = span(5, 1000);
	expected = digest_of(copy + 5, 1000);
	r = memory_digests(&device, spans, 2, &options, sums, &error);
	end();
	if (r == 0)
		return report.note[0] && digest_equal(&sums[1].digest, &expected) ? 0 : 1;
	return r == -EIO && strstr(error.message, "CUDA_ERROR_UNKNOWN") ? 0 : 2;
}

/* Whatever call fails, an error comes of it, or right digests and a note that they were read back. */
Test(digests, fail_cleanly_whatever_call_does)
{
	static const char *const failing[] = {
		"cuCtxGetCurrent:1:999",     "cuCtxGetId:1:999",           "cuMemAlloc_v2:1:999",
		"cuStreamCreate:1:999",      "cuStreamCreate:2:999",       "cuEventCreate:1:999",
		"cuEventCreate:6:999",       "cuMemcpyHtoDAsync_v2:1:999", "cuMemsetD8Async:1:999",
		"cuEventRecord:1:999",       "cuEventRecord:2:999",        "cuLaunchKernel:1:999",
		"cuStreamSynchronize:2:999", "cuMemcpyDtoHAsync_v2:1:999", "cuEventElapsedTime_v2:1:999",
	};

	if (!on_gpu())
		return;
	for (size_t i = 0; i < sizeof(failing) / sizeof(failing[0]); i++) {
		int status = IN_CHILD(digest_failing(failing[i]));

		cr_expect_eq(status, 0, "%s: %d", failing[i], WEXITSTATUS(status));
	}
}
