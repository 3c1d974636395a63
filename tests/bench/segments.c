/* What each driver call costs by the size of segments, for the same bytes in all: how large segments should be.
 * Bare calls only, no gpuwmd.
 *
 *   segments [--device UUID] [--bytes SIZE] [--rounds N] SIZE...
 *
 * A line for each size of segment; medians of rounds, in ms for all segments together.
 */
#include "bench.h"

#include "lib/driver.h"
#include "lib/flags.h"

#define SEGMENTS_MAX 4096
#define ROUNDS_MAX 99

enum call { CREATE, EXPORT, IMPORT, RESERVE, MAP, ACCESS, UNMAP, RELEASE, FREE, CALLS };

struct segment {
	CUmemGenericAllocationHandle made, imported;
	int fd;
};

static double times[CALLS][ROUNDS_MAX];

static void make(struct segment *segments, size_t count, uint64_t bytes, size_t round)
{
	CUmemAllocationProp properties = driver_properties();
	double begin = now_us();

	for (size_t i = 0; i < count; i++)
		CU(driver.cuMemCreate(&segments[i].made, bytes, &properties, 0));
	times[CREATE][round] = now_us() - begin;
	begin = now_us();
	for (size_t i = 0; i < count; i++)
		CU(driver.cuMemExportToShareableHandle(&segments[i].fd, segments[i].made,
						       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	times[EXPORT][round] = now_us() - begin;
}

static void map(struct segment *segments, size_t count, uint64_t bytes, size_t round, CUdeviceptr *ret_base)
{
	CUmemAccessDesc rights = driver_access(CU_MEM_ACCESS_FLAGS_PROT_READ);
	double begin = now_us();

	for (size_t i = 0; i < count; i++)
		CU(driver.cuMemImportFromShareableHandle(&segments[i].imported,
							 (void *)(intptr_t)segments[i].fd,
							 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	times[IMPORT][round] = now_us() - begin;
	begin = now_us();
	CU(driver.cuMemAddressReserve(ret_base, bytes * count, 0, 0, 0));
	times[RESERVE][round] = now_us() - begin;
	begin = now_us();
	for (size_t i = 0; i < count; i++)
		CU(driver.cuMemMap(*ret_base + i * bytes, bytes, 0, segments[i].imported, 0));
	times[MAP][round] = now_us() - begin;
	begin = now_us();
	CU(driver.cuMemSetAccess(*ret_base, bytes * count, &rights, 1));
	times[ACCESS][round] = now_us() - begin;
}

static void unmap(struct segment *segments, size_t count, uint64_t bytes, size_t round, CUdeviceptr base)
{
	double begin = now_us();

	for (size_t i = 0; i < count; i++)
		CU(driver.cuMemUnmap(base + i * bytes, bytes));
	CU(driver.cuMemAddressFree(base, bytes * count));
	times[UNMAP][round] = now_us() - begin;
	begin = now_us();
	for (size_t i = 0; i < count; i++)
		CU(driver.cuMemRelease(segments[i].imported));
	times[RELEASE][round] = now_us() - begin;
	begin = now_us();
	for (size_t i = 0; i < count; i++) {
		CU(driver.cuMemRelease(segments[i].made));
		close(segments[i].fd);
	}
	times[FREE][round] = now_us() - begin;
}

static void measure(uint64_t bytes, uint64_t segment_bytes, size_t rounds)
{
	static struct segment segments[SEGMENTS_MAX];
	size_t count = bytes / segment_bytes;
	CUdeviceptr base;

	if (count == 0 || count > SEGMENTS_MAX)
		DIE("%zu segments", count);
	for (size_t round = 0; round < rounds; round++) {
		make(segments, count, segment_bytes, round);
		map(segments, count, segment_bytes, round, &base);
		unmap(segments, count, segment_bytes, round, base);
	}
	printf("%12llu %9zu", (unsigned long long)(segment_bytes >> 20), count);
	for (int call = 0; call < CALLS; call++)
		printf(" %9.3f", percentile(times[call], rounds, 0.5) / 1000);
	printf(" %9.3f\n", (percentile(times[IMPORT], rounds, 0.5) + percentile(times[RESERVE], rounds, 0.5) +
			    percentile(times[MAP], rounds, 0.5) + percentile(times[ACCESS], rounds, 0.5)) /
				   1000);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	const char *device = NULL;
	uint64_t bytes = GIB(64), rounds = 9;
	const struct flag flags[] = {
		{"device", .text = &device}, {"bytes", .number = &bytes}, {"rounds", .number = &rounds}, {0}};

	flags_read(argc, argv, flags);
	if (optind == argc || rounds > ROUNDS_MAX)
		DIE("usage: segments [--device UUID] [--bytes SIZE] [--rounds N] SIZE...");
	driver_open(device);
	driver_context();
	printf("%llu MiB in segments of equal size; ms for all of them, medians of %llu\n",
	       (unsigned long long)(bytes >> 20), (unsigned long long)rounds);
	printf("%12s %9s %9s %9s %9s %9s %9s %9s %9s %9s %9s %9s\n", "segment MiB", "segments", "create",
	       "export", "import", "reserve", "map", "access", "unmap", "release", "free", "attach");
	for (int i = optind; i < argc; i++)
		measure(bytes, parse_bytes(argv[i]), rounds);
	return 0;
}
