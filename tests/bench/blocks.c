/* Blocks that pass between processes: whether what is READY has its bytes, and put and get beside bare copies.
 *
 *   blocks [--socket SOCKET] [--device UUID] [--only hand|speed] [--rounds N] [--bytes MOST] [--repeat N] [--check]
 *
 * gpuwmd is at SOCKET, or at $GPUWM_SOCKET. Each measurement runs in processes of its own.
 *
 * hand: one process reserves blocks, queues a slow kernel, the copies into the blocks and their publish, all at once. The other one holds
 * them and compares every word. speed: put is reserve, a bare copy for each block, publish_in_stream, and waiting until the last one is
 * READY; get is hold, a bare copy for each block, release_in_stream, and waiting for the stream. Both stand beside the same copies without
 * any block, and beside one copy of as many bytes. --bytes: of all blocks of a batch, at most.
 */
#include "bench.h"

#include "lib/blocks.h"
#include "lib/driver.h"
#include "lib/flags.h"
#include "lib/report.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define RATIO 0.8 /* of the same copies without any block: the goal */
#define REPEAT_MAX 101

/* Blocks of a hand-off, and how many hand-offs have room at once: each block is used again and again, with other bytes. */
#define BATCH 4
#define HAND_BYTES ((size_t)256 << 10)
#define HAND_ROOM 8
#define AHEAD 4 /* hand-offs that the writer may be ahead, so that it evicts what was read */
#define ROUNDS_MAX 100000
#define ONE_LINE_ROUNDS 200 /* with CUDA_DEVICE_MAX_CONNECTIONS=1 */
#define OFFSETS 65536 /* of the words that a block gets, 256 bytes apart */

static struct told {
	char device[64], region[33];
	_Atomic unsigned arrived[2];
	_Atomic uint64_t queued, read; /* hand-offs */
	uint64_t early, wrong; /* hand-offs that the reader came to before they were READY; words */
} * told;

static struct {
	const char *socket, *device, *only;
	uint64_t rounds, bytes, repeat;
	bool check;
} flags = {.rounds = 1000, .bytes = (uint64_t)8 << 30, .repeat = 11};

static void *make(size_t count, size_t bytes)
{
	void *made = calloc(count, bytes);

	if (!made)
		DIE("no memory");
	return made;
}

static void begin(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	driver_open(told->device);
	driver_context();
}

static CUdeviceptr address(const struct gpuwm_region *region, struct gpuwm_block block)
{
	return (CUdeviceptr)gpuwm_block_address(region, block.number);
}

/* ---- hand-offs -------------------------------------------------------------------- */

static void meet(unsigned side)
{
	unsigned mine = atomic_fetch_add(&told->arrived[side], 1) + 1;
	double since = now_us();

	while (atomic_load(&told->arrived[!side]) < mine)
		if (now_us() - since > 60e6)
			DIE("the other process does not come");
}

static void wait_until(_Atomic uint64_t *count, uint64_t least)
{
	double since = now_us();

	while (atomic_load(count) < least)
		if (now_us() - since > 60e6)
			DIE("the other process stands still at %llu", (unsigned long long)atomic_load(count));
}

static size_t source_bytes(void)
{
	return HAND_BYTES + OFFSETS * 256;
}

/* Where the words of a block begin in the source: each of them differs from the block's last ones. */
static size_t source_offset(uint64_t round, unsigned block)
{
	return (round * BATCH + block) % OFFSETS * 256;
}

static uint64_t *make_source(void)
{
	uint64_t *words = make(source_bytes(), 1);

	for (size_t i = 0; i < source_bytes() / 8; i++)
		words[i] = mixed(i);
	return words;
}

/* From 0.1 to 2 ms. The stand-in driver runs no kernels, and does by itself what is queued as late as it may. */
static void slow_down(CUstream stream, uint64_t round)
{
	uint64_t ns = 100000 + mixed(round) % 1900000;
	void *arguments[] = {&ns};

	if (driver_has_kernels())
		CU(driver.cuLaunchKernel(driver_kernel("spin"), 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

static void hand(struct gpuwm_region *region, CUstream stream, CUdeviceptr source, uint64_t round)
{
	struct gpuwm_block_key keys[BATCH];
	struct gpuwm_block blocks[BATCH];

	make_keys(keys, BATCH, round * BATCH);
	blocks_reserve(region, keys, BATCH, blocks);
	slow_down(stream, round);
	for (unsigned i = 0; i < BATCH; i++)
		CU(driver.cuMemcpyDtoDAsync_v2(address(region, blocks[i]), source + source_offset(round, i),
					       HAND_BYTES, stream));
	GPUWM(gpuwm_blocks_publish_in_stream(region, blocks, BATCH, stream));
	atomic_store(&told->queued, round + 1);
}

static void write_all(uint64_t rounds)
{
	struct gpuwm_client *client;
	struct gpuwm_region *region;
	CUdeviceptr source;
	CUstream stream;

	begin();
	client = blocks_connect(flags.socket);
	region = blocks_create(client, told->device, HAND_ROOM * BATCH, HAND_BYTES, told->region);
	CU(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(driver.cuMemAlloc_v2(&source, source_bytes()));
	CU(driver.cuMemcpyHtoD_v2(source, make_source(), source_bytes()));
	meet(0);
	for (uint64_t round = 0; round < rounds; round++) {
		if (round >= AHEAD)
			wait_until(&told->read, round - AHEAD + 1);
		hand(region, stream, source, round);
	}
	meet(0);
	CU(driver.cuStreamSynchronize(stream));
	blocks_remove(client, region);
}

static uint64_t wrong_words(const uint64_t *found, const uint64_t *expected)
{
	uint64_t wrong = 0;

	if (memcmp(found, expected, HAND_BYTES) == 0)
		return 0;
	for (size_t i = 0; i < HAND_BYTES / 8; i++)
		wrong += found[i] != expected[i];
	return wrong;
}

static void take(struct gpuwm_region *region, CUstream stream, const uint64_t *source, uint64_t round)
{
	static uint64_t found[HAND_BYTES / 8];
	struct gpuwm_block_key keys[BATCH];
	struct gpuwm_block blocks[BATCH];
	size_t there;

	make_keys(keys, BATCH, round * BATCH);
	wait_until(&told->queued, round + 1);
	GPUWM(gpuwm_blocks_find(region, keys, BATCH, &there));
	told->early += there < BATCH;
	blocks_hold(region, keys, BATCH, blocks);
	for (unsigned i = 0; i < BATCH; i++) {
		CU(driver.cuMemcpyDtoH_v2(found, address(region, blocks[i]), HAND_BYTES));
		told->wrong += wrong_words(found, source + source_offset(round, i) / 8);
	}
	if (round % 2)
		GPUWM(gpuwm_blocks_release(region, blocks, BATCH));
	else
		GPUWM(gpuwm_blocks_release_in_stream(region, blocks, BATCH, stream));
	atomic_store(&told->read, round + 1);
}

static void read_all(uint64_t rounds)
{
	const uint64_t *source = make_source();
	struct gpuwm_client *client;
	struct gpuwm_region *region;
	CUstream stream;

	begin();
	client = blocks_connect(flags.socket);
	meet(1);
	GPUWM(gpuwm_region_open(client, told->region, 0, 0, &region));
	CU(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (uint64_t round = 0; round < rounds; round++)
		take(region, stream, source, round);
	CU(driver.cuStreamSynchronize(stream));
	GPUWM(gpuwm_region_close(region));
	meet(1);
	gpuwm_close(client);
}

/* ---- put and get -------------------------------------------------------------------- */

struct speed {
	struct gpuwm_region *region;
	struct gpuwm_block_key *keys;
	struct gpuwm_block *blocks;
	size_t count;
	uint64_t bytes; /* of a block */
	CUdeviceptr source, other;
	CUstream stream;
};

static void copy(const struct speed *speed, CUdeviceptr to, CUdeviceptr from, uint64_t bytes)
{
	CU(driver.cuMemcpyDtoDAsync_v2(to, from, bytes, speed->stream));
}

static double one_copy(struct speed *speed)
{
	double start = now_us();

	copy(speed, speed->other, speed->source, speed->count * speed->bytes);
	CU(driver.cuStreamSynchronize(speed->stream));
	return now_us() - start;
}

static double bare_copies(struct speed *speed)
{
	double start = now_us();

	for (size_t i = 0; i < speed->count; i++)
		copy(speed, speed->other + i * speed->bytes, speed->source + i * speed->bytes, speed->bytes);
	CU(driver.cuStreamSynchronize(speed->stream));
	return now_us() - start;
}

/* All of the region's blocks, so from the second time on it evicts each of them. */
static double put(struct speed *speed)
{
	const size_t last = speed->count - 1;
	struct gpuwm_block held;
	double start, us;

	make_new_keys(speed->keys, speed->count);
	start = now_us();
	blocks_reserve(speed->region, speed->keys, speed->count, speed->blocks);
	for (size_t i = 0; i < speed->count; i++)
		copy(speed, address(speed->region, speed->blocks[i]), speed->source + i * speed->bytes,
		     speed->bytes);
	GPUWM(gpuwm_blocks_publish_in_stream(speed->region, speed->blocks, speed->count, speed->stream));
	blocks_hold(speed->region, speed->keys + last, 1, &held);
	us = now_us() - start;
	GPUWM(gpuwm_blocks_release(speed->region, &held, 1));
	CU(driver.cuStreamSynchronize(speed->stream));
	return us;
}

static double get(struct speed *speed)
{
	double start = now_us();

	blocks_hold(speed->region, speed->keys, speed->count, speed->blocks);
	for (size_t i = 0; i < speed->count; i++)
		copy(speed, speed->other + i * speed->bytes, address(speed->region, speed->blocks[i]),
		     speed->bytes);
	GPUWM(gpuwm_blocks_release_in_stream(speed->region, speed->blocks, speed->count, speed->stream));
	CU(driver.cuStreamSynchronize(speed->stream));
	return now_us() - start;
}

static void measure_speed(struct speed *speed)
{
	static double (*const ways[])(struct speed * speed) = {one_copy, bare_copies, put, get};
	static double us[4][REPEAT_MAX];
	const double bytes = (double)(speed->count * speed->bytes);
	double rate[4];

	for (int i = 0; i < 4; i++) /* the first time a call may do what is done once in a process */
		ways[i](speed);
	for (uint64_t n = 0; n < flags.repeat; n++)
		for (int i = 0; i < 4; i++)
			us[i][n] = ways[i](speed);
	for (int i = 0; i < 4; i++)
		rate[i] = bytes / percentile(us[i], flags.repeat, 0.5) / 1e3;
	heading("%zu blocks of %llu KiB; medians of %llu", speed->count, (unsigned long long)speed->bytes >> 10,
		(unsigned long long)flags.repeat);
	result(rate[0], "GB/s", "one copy of as many bytes");
	result(rate[1], "GB/s", "a copy for each block");
	result(rate[2], "GB/s", "put");
	result(rate[3], "GB/s", "get");
	result_at_least(rate[2] / rate[1], RATIO, "x", "put, of the same copies");
	result_at_least(rate[3] / rate[1], RATIO, "x", "get, of the same copies");
}

/* bytes: of a block. */
static void run_speed(uint64_t bytes, uint64_t count)
{
	struct speed speed = {.count = count, .bytes = bytes};
	struct gpuwm_client *client;

	begin();
	client = blocks_connect(flags.socket);
	speed.region = blocks_create(client, told->device, (uint32_t)count, bytes, told->region);
	speed.keys = make(count, sizeof(*speed.keys));
	speed.blocks = make(count, sizeof(*speed.blocks));
	CU(driver.cuStreamCreate(&speed.stream, CU_STREAM_NON_BLOCKING));
	CU(driver.cuMemAlloc_v2(&speed.source, count * bytes));
	CU(driver.cuMemAlloc_v2(&speed.other, count * bytes));
	CU(driver.cuMemsetD8_v2(speed.source, 1, count * bytes));
	CU(driver.cuMemsetD8_v2(speed.other, 2, count * bytes));
	measure_speed(&speed);
	blocks_remove(client, speed.region);
}

static void speed_of(uint64_t bytes, uint64_t count)
{
	run_speed(bytes, count * bytes > flags.bytes ? flags.bytes / bytes : count);
}

/* ---- this process --------------------------------------------------------------------- */

static unsigned missed;

static pid_t start(void (*fn)(uint64_t one, uint64_t other), uint64_t one, uint64_t other)
{
	pid_t child = fork();

	if (child < 0)
		DIE("fork: %s", strerror(errno));
	if (child == 0) {
		fn(one, other);
		fflush(NULL);
		_exit(results_missed() ? 2 : 0);
	}
	return child;
}

static void end(pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
	    (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 2))
		DIE("a process of the measurement failed");
	missed += WEXITSTATUS(status) == 2;
}

static void run(void (*fn)(uint64_t one, uint64_t other), uint64_t one, uint64_t other)
{
	fflush(NULL);
	end(start(fn, one, other));
}

static void write_side(uint64_t rounds, uint64_t one_line)
{
	if (one_line)
		setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
	write_all(rounds);
}

static void read_side(uint64_t rounds, uint64_t one_line)
{
	if (one_line)
		setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
	read_all(rounds);
}

static void measure_hand_offs(uint64_t rounds, bool one_line)
{
	char device[sizeof(told->device)];
	pid_t writer, reader;

	memcpy(device, told->device, sizeof(device));
	memset(told, 0, sizeof(*told));
	memcpy(told->device, device, sizeof(device));
	fflush(NULL);
	writer = start(write_side, rounds, one_line);
	reader = start(read_side, rounds, one_line);
	end(reader);
	end(writer);
	heading("%llu hand-offs of %d blocks of %zu KiB, CUDA_DEVICE_MAX_CONNECTIONS %s",
		(unsigned long long)rounds, BATCH, HAND_BYTES >> 10, one_line ? "1" : "unset");
	result((double)told->early, "", "the reader came before they were READY");
	result_at_most((double)told->wrong, 0, "", "wrong words of %llu",
		       (unsigned long long)(rounds * BATCH * HAND_BYTES / 8));
}

/* gpuwmd's first GPU, asked in a process of its own: this one forks the others. */
static void find_device(uint64_t one, uint64_t other)
{
	const struct gpuwm_device *devices;
	struct gpuwm_client *client = blocks_connect(flags.socket);
	size_t count = gpuwm_devices(client, &devices);

	(void)one;
	(void)other;
	for (size_t i = 0; i < count && !told->device[0]; i++)
		if (devices[i].is_cuda)
			snprintf(told->device, sizeof(told->device), "%s", devices[i].id);
	gpuwm_close(client);
	if (!told->device[0])
		DIE("gpuwmd has no GPU: name a device with --device");
}

static bool wanted(const char *part)
{
	return !flags.only || strcmp(flags.only, part) == 0;
}

static void measure(void)
{
	static const uint64_t sizes[] = {64 << 10, 256 << 10, 1 << 20, 5 << 20};

	if (wanted("hand")) {
		measure_hand_offs(flags.rounds, false);
		measure_hand_offs(flags.rounds < ONE_LINE_ROUNDS ? flags.rounds : ONE_LINE_ROUNDS, true);
	}
	for (size_t i = 0; wanted("speed") && i < sizeof(sizes) / sizeof(*sizes); i++) {
		run(speed_of, sizes[i], 64);
		run(speed_of, sizes[i], 2000);
	}
}

int main(int argc, char **argv)
{
	flags_read(argc, argv,
		   (const struct flag[]){{.name = "socket", .text = &flags.socket},
					 {.name = "device", .text = &flags.device},
					 {.name = "only", .text = &flags.only},
					 {.name = "rounds", .number = &flags.rounds},
					 {.name = "bytes", .number = &flags.bytes},
					 {.name = "repeat", .number = &flags.repeat},
					 {.name = "check", .set = &flags.check},
					 {0}});
	if (flags.rounds > ROUNDS_MAX || flags.repeat > REPEAT_MAX)
		DIE("at most %d rounds, and %d repetitions", ROUNDS_MAX, REPEAT_MAX);
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (told == MAP_FAILED)
		DIE("mmap: %s", strerror(errno));
	if (flags.device)
		snprintf(told->device, sizeof(told->device), "%s", flags.device);
	else
		run(find_device, 0, 0);
	measure();
	missed += results_missed();
	return flags.check && missed > 0;
}
