/* How fast digests are: of each variant for CPUs on one core, of all cores together, and of the kernel on a GPU beside a
 * kernel that only reads; and whether they find what they are for.
 *
 *   digest [--device UUID|first] [--bytes SIZE] [--host-bytes SIZE] [--rounds N] [--flips N]
 *
 * Without a device the CPU's part only. On a GPU it fills --bytes (64G) of memory of its own, compares the digests of
 * spans of every alignment with those of the CPU, and flips one bit at --flips (100) places. GPUWM_KERNELS names
 * tests/gpu/kernels.ptx; without it there is no ceiling. Medians of rounds that take turns. Ends with 1 where a
 * digest is wrong.
 */
#include "bench.h"

#include "memory/memory.h"
#include "lib/driver.h"
#include "lib/report.h"
#include "proto/index/digest.h"

#include <getopt.h>
#include <sys/mman.h>

#define ROUNDS_MAX 99
#define CACHED KIB(256) /* stays in a core's cache */
#define TENSORS 1000 /* of a version of 64 GiB */

static uint64_t random_number(void)
{
	static uint64_t state = 88172645463325252;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void fill(uint8_t *data, size_t bytes)
{
	for (size_t i = 0; i + 8 <= bytes; i += 8)
		memcpy(data + i, &(uint64_t){random_number()}, 8);
}

static double gb_s(uint64_t bytes, double us)
{
	return (double)bytes / us / 1e3;
}

/* ---- CPU -------------------------------------------------------------------- */

/* One core: `bytes` in all, of an area that is gone through again and again. */
static double variant_rate(const struct digest_kernel *kernel, const uint8_t *data, uint64_t area,
			   uint64_t bytes)
{
	static volatile uint64_t sink;
	double begin = now_us();

	for (uint64_t done = 0; done < bytes; done += area) {
		struct digest_sum sum = kernel->sum(0, data, area / 8);

		sink = sum.a + sum.b;
	}
	(void)sink;
	return gb_s(bytes, now_us() - begin);
}

/* What reading alone takes: words are added up, by what the compiler makes of it. */
__attribute__((optimize("O3"))) static struct digest_sum add_up(uint64_t first, const uint8_t *data,
								size_t count)
{
	struct digest_sum sum = {first, 0};

	for (size_t i = 0; i < count; i++)
		sum.a += ((const uint64_t *)data)[i];
	return sum;
}

static double all_cores_rate(const uint8_t *data, uint64_t bytes)
{
	struct memory_span span = {data, bytes};
	struct memory_device host;
	struct memory_sum sum;
	struct error error;
	double begin;

	if (memory_device_open("host", &host, &error) < 0)
		DIE("%s", error.message);
	begin = now_us();
	if (memory_digests(&host, &span, 1, NULL, &sum, &error) < 0)
		DIE("%s", error.message);
	return gb_s(bytes, now_us() - begin);
}

static void measure_cpu(uint64_t bytes, size_t rounds)
{
	struct digest_kernel kernels[DIGEST_KERNELS_MAX + 1];
	double cached[DIGEST_KERNELS_MAX + 1][ROUNDS_MAX], memory[DIGEST_KERNELS_MAX + 1][ROUNDS_MAX],
		all[ROUNDS_MAX];
	size_t count = digest_kernels(kernels);
	uint8_t *data =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (data == MAP_FAILED)
		DIE("no room for %llu bytes", (unsigned long long)bytes);
	kernels[count++] = (struct digest_kernel){"nothing but a sum of the words", add_up};
	fill(data, bytes);
	for (size_t r = 0; r < rounds; r++) {
		for (size_t k = 0; k < count; k++) {
			cached[k][r] = variant_rate(&kernels[k], data, CACHED, bytes);
			memory[k][r] = variant_rate(&kernels[k], data, bytes, bytes);
		}
		all[r] = all_cores_rate(data, bytes);
	}
	heading("Digests on the CPU, %.1f GiB", (double)bytes / (double)GIB(1));
	for (size_t k = 0; k < count; k++) {
		result(percentile(cached[k], rounds, 0.5), "GB/s", "one core, in its cache, %s",
		       kernels[k].name);
		result(percentile(memory[k], rounds, 0.5), "GB/s", "one core, from memory, %s",
		       kernels[k].name);
	}
	result(percentile(all, rounds, 0.5), "GB/s", "all cores, from memory");
	munmap(data, bytes);
}

/* ---- GPU ---------------------------------------------------------------------- */

#ifdef GPUWM_CUDA

#define SEGMENT GIB(2)
#define RANDOM MIB(64) /* at the beginning of each segment; the rest is another word in each */
#define PIECES 100000

static struct memory_device device;
static CUdeviceptr base;
static uint64_t total;
static CUevent begin, end;

static void open_device(const char *id)
{
	char first[DEVICE_BYTES_MAX + 1] = "GPU-";
	struct error error;
	CUuuid uuid;

	driver_open(strcmp(id, "first") == 0 ? NULL : id);
	CU(driver.cuDeviceGetUuid_v2(&uuid, driver.device));
	for (int i = 0; i < 16; i++)
		sprintf(first + strlen(first), i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
			(unsigned char)uuid.bytes[i]);
	if (memory_device_open(strcmp(id, "first") == 0 ? first : id, &device, &error) < 0 ||
	    device.ops->enter(&device, &error) < 0)
		DIE("%s", error.message);
	CU(driver.cuEventCreate(&begin, CU_EVENT_DEFAULT));
	CU(driver.cuEventCreate(&end, CU_EVENT_DEFAULT));
}

/* One range of addresses, segments of physical memory side by side. */
static void make_memory(uint64_t bytes)
{
	CUmemAllocationProp properties = driver_properties();
	CUmemAccessDesc rights = driver_access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUmemGenericAllocationHandle handle;
	uint64_t segment = bytes < SEGMENT ? bytes : SEGMENT;
	uint8_t *data = malloc(RANDOM);

	total = bytes / segment * segment;
	fill(data, RANDOM);
	CU(driver.cuMemAddressReserve(&base, total, 0, 0, 0));
	for (uint64_t at = 0; at < total; at += segment) {
		CU(driver.cuMemCreate(&handle, segment, &properties, 0));
		CU(driver.cuMemMap(base + at, segment, 0, handle, 0));
		CU(driver.cuMemRelease(handle));
	}
	CU(driver.cuMemSetAccess(base, total, &rights, 1));
	for (uint64_t at = 0; at < total; at += segment) {
		CU(driver.cuMemsetD32_v2(base + at, (unsigned)random_number(), segment / 4));
		CU(driver.cuMemcpyHtoD_v2(base + at, data, segment < RANDOM ? segment : RANDOM));
	}
	CU(driver.cuCtxSynchronize());
	free(data);
}

static void *address(uint64_t offset)
{
	return (void *)(uintptr_t)(base + offset);
}

static struct memory_report digest(const struct memory_span *spans, size_t count, struct memory_sum *sums)
{
	struct memory_report report;
	const struct memory_digest_options options = {.ret_report = &report};
	struct error error;

	if (memory_digests(&device, spans, count, &options, sums, &error) < 0)
		DIE("%s", error.message);
	if (!report.kernel)
		DIE("%s", report.note);
	return report;
}

/* GB/s of the plain kernel, of all memory in one launch. */
static double read_rate(unsigned blocks)
{
	static CUdeviceptr sum;
	uint64_t count = total / 16;
	void *arguments[] = {&base, &count, &sum};
	float ms;

	if (!sum)
		CU(driver.cuMemAlloc_v2(&sum, 8));
	CU(driver.cuEventRecord(begin, NULL));
	CU(driver.cuLaunchKernel(driver_kernel("read_all"), blocks, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL));
	CU(driver.cuEventRecord(end, NULL));
	CU(driver.cuEventSynchronize(end));
	CU(driver.cuEventElapsedTime(&ms, begin, end));
	return gb_s(total, ms * 1e3);
}

static unsigned best_blocks(void)
{
	unsigned best = 0;
	double rate = 0;
	int sms = 0;

	CU(driver.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, driver.device));
	for (unsigned each = 4; each <= 64; each *= 2) {
		unsigned blocks = each * (unsigned)sms;
		double now = (read_rate(blocks), read_rate(blocks));

		if (now > rate) {
			rate = now;
			best = blocks;
		}
	}
	return best;
}

/* All memory in `count` spans of about the same length. */
static struct memory_span *cut(size_t count)
{
	struct memory_span *spans = calloc(count, sizeof(*spans));
	uint64_t each = total / count / 256 * 256;

	for (size_t i = 0; i < count; i++)
		spans[i] = (struct memory_span){address(i * each), i + 1 < count ? each : total - i * each};
	return spans;
}

static void measure_gpu(size_t rounds)
{
	static const size_t counts[] = {1, TENSORS, PIECES};
	static const char *const names[] = {"one piece", "1,000 tensors", "100,000 pieces"};
	double read[ROUNDS_MAX], kernel[3][ROUNDS_MAX], whole[3][ROUNDS_MAX], ceiling = 0;
	struct memory_sum *sums = calloc(PIECES, sizeof(*sums));
	unsigned blocks = driver_has_kernels() ? best_blocks() : 0;

	for (size_t r = 0; r < rounds; r++) {
		if (blocks)
			read[r] = read_rate(blocks);
		for (size_t i = 0; i < 3; i++) {
			struct memory_span *spans = cut(counts[i]);
			double begun = now_us();

			kernel[i][r] = gb_s(total, digest(spans, counts[i], sums).seconds * 1e6);
			whole[i][r] = (now_us() - begun) / 1e3;
			free(spans);
		}
	}
	heading("Digests on %s, %.1f GiB", device.id, (double)total / (double)GIB(1));
	if (blocks) {
		ceiling = percentile(read, rounds, 0.5);
		result(ceiling, "GB/s", "a kernel that only reads, %u blocks", blocks);
	}
	for (size_t i = 0; i < 3; i++) {
		double rate = percentile(kernel[i], rounds, 0.5);

		result(rate, "GB/s", "the kernel, %s", names[i]);
		if (blocks)
			result_at_least(rate / ceiling, 0.9, "x", "the kernel, %s, of the one that only reads",
					names[i]);
		result(percentile(whole[i], rounds, 0.5), "ms", "the whole call, %s", names[i]);
	}
	free(sums);
}

/* Spans of every alignment and of 0 to 70 bytes, some larger ones, against the CPU's digests. */
static void compare_with_cpu(void)
{
	enum { SMALL = 16 * 71, ALL = SMALL + 64 };
	static struct memory_span spans[ALL];
	static struct memory_sum sums[ALL];
	uint64_t area = total < MIB(48) ? total : MIB(48);
	uint8_t *copy = malloc(area);
	size_t wrong = 0;

	for (unsigned i = 0; i < ALL; i++) {
		uint64_t bytes = i < SMALL ? i / 16 : random_number() % (area / 4);

		spans[i] =
			(struct memory_span){address(random_number() % (area / 2) / 16 * 16 + i % 16), bytes};
	}
	CU(driver.cuMemcpyDtoH_v2(copy, base, area));
	digest(spans, ALL, sums);
	for (unsigned i = 0; i < ALL; i++) {
		struct digest expected = digest_of(copy + ((uintptr_t)spans[i].address - base), spans[i].bytes);

		wrong += !digest_equal(&expected, &sums[i].digest);
	}
	free(copy);
	result_at_least((double)(ALL - wrong), ALL, "", "digests of odd spans as the CPU's, of %d", ALL);
}

static void flip(uint64_t offset, unsigned bit)
{
	uint8_t byte;

	CU(driver.cuMemcpyDtoH_v2(&byte, base + offset, 1));
	byte ^= (uint8_t)(1u << bit);
	CU(driver.cuMemcpyHtoD_v2(base + offset, &byte, 1));
	CU(driver.cuCtxSynchronize());
}

/* Which of the tensors differ from what they were: their number, and the first. */
static size_t differing(const struct memory_sum *before, const struct memory_sum *now, size_t *ret_first)
{
	size_t count = 0;

	for (size_t i = TENSORS; i-- > 0;) {
		if (digest_equal(&before[i].digest, &now[i].digest))
			continue;
		count++;
		*ret_first = i;
	}
	return count;
}

static void find_flips(unsigned flips)
{
	struct memory_span *spans = cut(TENSORS);
	struct memory_sum before[TENSORS], now[TENSORS];
	size_t found = 0, first = 0;

	digest(spans, TENSORS, before);
	for (unsigned i = 0; i < flips; i++) {
		uint64_t offset = random_number() % total;
		unsigned bit = (unsigned)(random_number() % 8);

		flip(offset, bit);
		digest(spans, TENSORS, now);
		flip(offset, bit);
		if (differing(before, now, &first) == 1)
			found += (uintptr_t)spans[first].address <= base + offset &&
				 base + offset < (uintptr_t)spans[first].address + spans[first].bytes;
	}
	digest(spans, TENSORS, now);
	result_at_least((double)found, flips, "", "flipped bits found, each in its tensor, of %u", flips);
	result_at_most((double)differing(before, now, &first), 0, "",
		       "tensors that differ once they are flipped back");
	free(spans);
}

static void gpu(const char *id, uint64_t bytes, size_t rounds, unsigned flips)
{
	open_device(id);
	make_memory(bytes);
	measure_gpu(rounds);
	compare_with_cpu();
	find_flips(flips);
	device.ops->leave(&device);
}

#else

static void gpu(const char *id, uint64_t bytes, size_t rounds, unsigned flips)
{
	(void)bytes, (void)rounds, (void)flips;
	DIE("this was built without cuda.h: it can't use %s", id);
}

#endif

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"device", required_argument, NULL, 'd'},     {"bytes", required_argument, NULL, 'b'},
		{"host-bytes", required_argument, NULL, 'h'}, {"rounds", required_argument, NULL, 'r'},
		{"flips", required_argument, NULL, 'f'},      {0}};
	uint64_t bytes = GIB(64), host_bytes = MIB(512);
	unsigned rounds = 5, flips = 100;
	const char *id = NULL;

	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		if (c == 'd')
			id = optarg;
		else if (c == 'b')
			bytes = parse_bytes(optarg);
		else if (c == 'h')
			host_bytes = parse_bytes(optarg);
		else if (c == 'r')
			rounds = (unsigned)atoi(optarg);
		else if (c == 'f')
			flips = (unsigned)atoi(optarg);
		else
			return 1;
	}
	if (rounds < 1 || rounds > ROUNDS_MAX || bytes % MIB(2) || host_bytes % MIB(2))
		DIE("between 1 and %d rounds; sizes are multiples of 2M", ROUNDS_MAX);
	measure_cpu(host_bytes, rounds);
	if (id)
		gpu(id, bytes, rounds, flips);
	return results_missed() > 0;
}
