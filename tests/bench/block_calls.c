/* What the calls on blocks cost alone, without their bytes: on 2,000 blocks at once, on one, and evictions in a large region.
 *
 *   block_calls [--socket SOCKET] [--device DEVICE] [--repeat N] [--check]
 *
 * gpuwmd is at SOCKET, or at $GPUWM_SOCKET. DEVICE: "host", which is what is taken without it, "cuda:0" or a UUID.
 */
#include "bench.h"

#include "lib/blocks.h"
#include "lib/flags.h"
#include "lib/operate.h"
#include "lib/report.h"

#define REPEAT_MAX 101
#define BLOCK_BYTES 256
#define BLOCKS 2000
#define MANY_BLOCKS 262144 /* as many as a region may have */
#define FILL_BATCH 4096 /* a whole number of them fills it */

static const char *device;
static uint64_t repeat = 11;

enum call { RESERVE, PUBLISH, FIND, HOLD, RELEASE, DROP, EVICT, CALLS };

static double lap(double *since)
{
	double now = now_us(), us = now - *since;

	*since = now;
	return us;
}

/* Into FREE blocks, and then into blocks that are READY. */
static void time_calls(struct gpuwm_region *region, double us[CALLS][REPEAT_MAX], uint64_t n)
{
	static struct gpuwm_block_key keys[BLOCKS], more[BLOCKS];
	static struct gpuwm_block blocks[BLOCKS];
	double since;
	size_t count;

	make_new_keys(keys, BLOCKS);
	make_new_keys(more, BLOCKS);
	since = now_us();
	blocks_reserve(region, keys, BLOCKS, blocks);
	us[RESERVE][n] = lap(&since);
	GPUWM(gpuwm_blocks_publish(region, blocks, BLOCKS));
	us[PUBLISH][n] = lap(&since);
	GPUWM(gpuwm_blocks_find(region, keys, BLOCKS, &count));
	us[FIND][n] = lap(&since);
	blocks_hold(region, keys, BLOCKS, blocks);
	us[HOLD][n] = lap(&since);
	GPUWM(gpuwm_blocks_release(region, blocks, BLOCKS));
	us[RELEASE][n] = lap(&since);
	blocks_reserve(region, more, BLOCKS, blocks);
	us[EVICT][n] = lap(&since);
	GPUWM(gpuwm_blocks_publish(region, blocks, BLOCKS));
	lap(&since);
	GPUWM(gpuwm_blocks_drop(region, more, BLOCKS, &count));
	us[DROP][n] = lap(&since);
	if (count != BLOCKS)
		DIE("%zu of %d blocks were dropped", count, BLOCKS);
}

static void measure_calls(struct gpuwm_region *region)
{
	static const char *const names[] = {"reserve, all FREE",   "publish", "find", "hold", "release", "drop",
					    "reserve, all evicted"};
	static double us[CALLS][REPEAT_MAX];

	for (uint64_t n = 0; n < repeat; n++)
		time_calls(region, us, n);
	heading("calls on %d blocks, us; medians of %llu", BLOCKS, (unsigned long long)repeat);
	for (int i = 0; i < CALLS; i++)
		result(percentile(us[i], repeat, 0.5), "us", "%s", names[i]);
}

/* Returns the number of the first key of the last batch. */
static uint64_t fill(struct gpuwm_region *region, size_t count)
{
	static struct gpuwm_block_key keys[FILL_BATCH];
	static struct gpuwm_block blocks[FILL_BATCH];

	uint64_t first = 0;

	for (; count > 0; count -= FILL_BATCH) {
		first = make_new_keys(keys, FILL_BATCH);
		blocks_reserve(region, keys, FILL_BATCH, blocks);
		GPUWM(gpuwm_blocks_publish(region, blocks, FILL_BATCH));
	}
	return first;
}

/* By one key at a time, from the first one on, and of one block: each is READY, so each reserve evicts one. */
static void measure_one(struct gpuwm_region *region, uint64_t first)
{
	static double held[BLOCKS], evicted[BLOCKS];
	struct gpuwm_block_key key;
	struct gpuwm_block block;
	double since;

	for (size_t i = 0; i < BLOCKS; i++) {
		make_keys(&key, 1, first + i);
		since = now_us();
		blocks_hold(region, &key, 1, &block);
		held[i] = lap(&since);
		GPUWM(gpuwm_blocks_release(region, &block, 1));
	}
	for (size_t i = 0; i < BLOCKS; i++) {
		make_new_keys(&key, 1);
		since = now_us();
		blocks_reserve(region, &key, 1, &block);
		evicted[i] = lap(&since);
		GPUWM(gpuwm_blocks_publish(region, &block, 1));
	}
	result(percentile(held, BLOCKS, 0.5), "us", "hold of one block by its key, p50");
	result(percentile(held, BLOCKS, 0.99), "us", "hold of one block by its key, p99");
	result(percentile(evicted, BLOCKS, 0.5), "us", "reserve of one block that evicts one, p50");
	result(percentile(evicted, BLOCKS, 0.99), "us", "reserve of one block that evicts one, p99");
	result(percentile(evicted, BLOCKS, 1), "us", "reserve of one block that evicts one, the slowest");
}

static void measure_many(struct gpuwm_region *region)
{
	static double us[REPEAT_MAX];
	static struct gpuwm_block_key keys[BLOCKS];
	static struct gpuwm_block blocks[BLOCKS];
	double since = now_us();
	uint64_t last;

	last = fill(region, MANY_BLOCKS);
	heading("a region of %d blocks", MANY_BLOCKS);
	result(lap(&since) / MANY_BLOCKS, "us", "reserve and publish, %d at a time, for each block",
	       FILL_BATCH);
	measure_one(region, last);
	for (uint64_t n = 0; n < repeat; n++) {
		make_new_keys(keys, BLOCKS);
		since = now_us();
		blocks_reserve(region, keys, BLOCKS, blocks);
		us[n] = lap(&since);
		GPUWM(gpuwm_blocks_publish(region, blocks, BLOCKS));
	}
	result(percentile(us, repeat, 0.5), "us", "reserve of %d blocks that evicts as many", BLOCKS);
}

static void measure(const char *socket, uint32_t blocks, void (*fn)(struct gpuwm_region *region))
{
	struct gpuwm_client *client = blocks_connect(socket);
	struct gpuwm_region *region;
	char id[33];

	region = blocks_create(client, device_id(client, device), blocks, BLOCK_BYTES, id);
	fn(region);
	blocks_remove(client, region);
}

int main(int argc, char **argv)
{
	const char *socket = NULL;
	bool check = false;

	device = "host";
	flags_read(argc, argv,
		   (const struct flag[]){{.name = "socket", .text = &socket},
					 {.name = "device", .text = &device},
					 {.name = "repeat", .number = &repeat},
					 {.name = "check", .set = &check},
					 {0}});
	if (repeat > REPEAT_MAX)
		DIE("at most %d repetitions", REPEAT_MAX);
	measure(socket, BLOCKS, measure_calls);
	measure(socket, MANY_BLOCKS, measure_many);
	return check && results_missed() > 0;
}
