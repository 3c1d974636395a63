/* Whether copies to a GPU go on while memory is made there: whether a load could begin to copy before all of
 * its memory is there. Bare calls only, no gpuwmd.
 *
 *   making [--device UUID] [--bytes SIZE] [--rounds N] [--makers N] SIZE...
 *
 * SIZE: of a segment. For each: the making of all bytes alone and beside copies from pinned memory, the rate of
 * those copies meanwhile, and how long a call that queues one took at most. Medians of rounds.
 * --makers: threads that make segments at the same time.
 */
#include "bench.h"

#include "lib/ceiling.h"
#include "lib/driver.h"
#include "lib/flags.h"

#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#define SEGMENTS_MAX 256
#define ROUNDS_MAX 99
#define CHUNK MIB(4)
#define SLOTS 16 /* two for each of so many readers that fill the link */
#define MAKERS_MAX 8
#define ALONE_US 100e3 /* of copies with nothing beside them */
#define SETTLE_US 250000 /* until what was freed is cleared, which slows copies meanwhile */

/* What other threads make. */
struct making {
	CUmemGenericAllocationHandle handles[SEGMENTS_MAX];
	CUdeviceptr base;
	uint64_t segment_bytes;
	size_t segments;
	pthread_t makers[MAKERS_MAX];
	size_t maker_count;
	double began_us, took_us;
	size_t next, made; /* atomic: segments */
};

struct copying {
	char *ring;
	CUdeviceptr to;
	CUstream stream;
	CUevent events[SLOTS];
	uint64_t bytes;
	double took_us, longest_us;
};

enum figure { MADE_ALONE, MADE_BESIDE, RATE_ALONE, RATE_BESIDE, LONGEST, FIGURES };

static double figures[FIGURES][ROUNDS_MAX];

static void *make(void *data)
{
	struct making *making = data;
	CUmemAllocationProp properties = driver_properties();
	CUmemAccessDesc rights = driver_access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	size_t i;

	while ((i = __atomic_fetch_add(&making->next, 1, __ATOMIC_RELAXED)) < making->segments) {
		CUdeviceptr at = making->base + i * making->segment_bytes;

		CU(driver.cuMemCreate(&making->handles[i], making->segment_bytes, &properties, 0));
		CU(driver.cuMemMap(at, making->segment_bytes, 0, making->handles[i], 0));
		CU(driver.cuMemSetAccess(at, making->segment_bytes, &rights, 1));
		if (__atomic_add_fetch(&making->made, 1, __ATOMIC_ACQ_REL) == making->segments)
			making->took_us = now_us() - making->began_us;
	}
	return NULL;
}

static void make_begin(struct making *making)
{
	making->next = making->made = 0;
	making->began_us = now_us();
	for (size_t i = 0; i < making->maker_count; i++) {
		if (pthread_create(&making->makers[i], NULL, make, making) != 0)
			DIE("no thread");
	}
}

static void make_end(struct making *making)
{
	for (size_t i = 0; i < making->maker_count; i++)
		pthread_join(making->makers[i], NULL);
}

static void unmake(struct making *making)
{
	for (size_t i = 0; i < making->segments; i++) {
		CU(driver.cuMemUnmap(making->base + i * making->segment_bytes, making->segment_bytes));
		CU(driver.cuMemRelease(making->handles[i]));
	}
	usleep(SETTLE_US);
}

/* Until the memory is made or, without any, for a while. */
static void copy(struct copying *copying, const struct making *making)
{
	double begin = now_us();

	copying->bytes = 0;
	copying->longest_us = 0;
	for (size_t i = 0; making ? __atomic_load_n(&making->made, __ATOMIC_ACQUIRE) < making->segments
				  : now_us() - begin < ALONE_US;
	     i = (i + 1) % SLOTS) {
		double queued;

		CU(driver.cuEventSynchronize(copying->events[i]));
		queued = now_us();
		CU(driver.cuMemcpyHtoDAsync_v2(copying->to + i * CHUNK, copying->ring + i * CHUNK, CHUNK,
					       copying->stream));
		CU(driver.cuEventRecord(copying->events[i], copying->stream));
		queued = now_us() - queued;
		copying->longest_us = queued > copying->longest_us ? queued : copying->longest_us;
		copying->bytes += CHUNK;
	}
	CU(driver.cuStreamSynchronize(copying->stream));
	copying->took_us = now_us() - begin;
}

static void copying_open(struct copying *copying)
{
	copying->ring = memory_of(SLOTS * CHUNK);
	CU(driver.cuMemHostRegister_v2(copying->ring, SLOTS * CHUNK, 0));
	CU(driver.cuMemAlloc_v2(&copying->to, SLOTS * CHUNK));
	CU(driver.cuStreamCreate(&copying->stream, CU_STREAM_NON_BLOCKING));
	for (size_t i = 0; i < SLOTS; i++)
		CU(driver.cuEventCreate(&copying->events[i], CU_EVENT_DISABLE_TIMING));
}

static void round_of(struct copying *copying, struct making *making, size_t round)
{
	make_begin(making);
	make_end(making);
	figures[MADE_ALONE][round] = making->took_us / 1000;
	unmake(making);
	copy(copying, NULL);
	figures[RATE_ALONE][round] = (double)copying->bytes / copying->took_us / 1000;
	make_begin(making);
	copy(copying, making);
	make_end(making);
	figures[MADE_BESIDE][round] = making->took_us / 1000;
	figures[RATE_BESIDE][round] = (double)copying->bytes / copying->took_us / 1000;
	figures[LONGEST][round] = copying->longest_us / 1000;
	unmake(making);
}

static void measure(struct copying *copying, uint64_t bytes, uint64_t segment_bytes, size_t rounds,
		    size_t makers)
{
	static struct making making;

	making.segments = bytes / segment_bytes;
	making.segment_bytes = segment_bytes;
	making.maker_count = makers;
	if (making.segments == 0 || making.segments > SEGMENTS_MAX)
		DIE("%zu segments", making.segments);
	CU(driver.cuMemAddressReserve(&making.base, making.segments * segment_bytes, 0, 0, 0));
	for (size_t round = 0; round < rounds; round++)
		round_of(copying, &making, round);
	CU(driver.cuMemAddressFree(making.base, making.segments * segment_bytes));
	printf("%12llu", (unsigned long long)(segment_bytes >> 20));
	for (int figure = 0; figure < FIGURES; figure++)
		printf(" %12.3f", percentile(figures[figure], rounds, 0.5));
	printf("\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct copying copying = {0};
	const char *device = NULL;
	uint64_t bytes = GIB(16), rounds = 9, makers = 1;
	const struct flag flags[] = {{"device", .text = &device},
				     {"bytes", .number = &bytes},
				     {"rounds", .number = &rounds},
				     {"makers", .number = &makers},
				     {0}};

	flags_read(argc, argv, flags);
	if (optind == argc || rounds > ROUNDS_MAX || makers == 0 || makers > MAKERS_MAX)
		DIE("usage: making [--device UUID] [--bytes SIZE] [--rounds N] [--makers N] SIZE...");
	driver_open(device);
	driver_context();
	copying_open(&copying);
	printf("%llu MiB made by %llu threads beside copies of 4 MiB; medians of %llu\n",
	       (unsigned long long)(bytes >> 20), (unsigned long long)makers, (unsigned long long)rounds);
	printf("%12s %12s %12s %12s %12s %12s\n", "segment MiB", "made, ms", "beside, ms", "copies, GB/s",
	       "beside, GB/s", "queued, ms");
	for (int i = optind; i < argc; i++)
		measure(&copying, bytes, parse_bytes(argv[i]), rounds, makers);
	return 0;
}
