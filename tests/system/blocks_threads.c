/* Threads of one process, and of another one, use the same blocks at once. */
#include "blocks_storm.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

SYSTEM_SUITE(blocks_threads);

#define THREADS 4
#define BLOCKS 8
#define KEYS 12
#define ROUNDS (SANITIZED ? 500 : 3000) /* of each thread */

struct thread {
	pthread_t thread;
	struct gpuwm_region *region;
	struct dice dice;
	unsigned filled, read;
};

static bool holds_bytes(struct gpuwm_region *region, const struct gpuwm_block *block, uint32_t key)
{
	return blocks_bytes_are(gpuwm_block_address(region, block->number),
				&(const struct blocks_use){*block, key, 1 + key}, NULL);
}

static void fill(struct thread *t, uint32_t key)
{
	const struct gpuwm_block_key name = blocks_key(key);
	struct gpuwm_block block;
	size_t done;
	int r = gpuwm_blocks_reserve(t->region, &name, 1, 1, &block, &done);

	CHILD_ASSERT(r == 0 || r == -EAGAIN);
	if (r < 0 || block.number == GPUWM_BLOCK_NONE)
		return;
	blocks_fill(gpuwm_block_address(t->region, block.number),
		    &(const struct blocks_use){block, key, 1 + key});
	CHILD_ASSERT(holds_bytes(t->region, &block, key));
	if (dice_percent(&t->dice, 10))
		CHILD_ASSERT(gpuwm_blocks_abandon(t->region, &block, 1) == 0);
	else
		CHILD_ASSERT(gpuwm_blocks_publish(t->region, &block, 1) == 0);
	t->filled++;
}

/* Some hold it twice. */
static void read_key(struct thread *t, uint32_t key)
{
	const struct gpuwm_block_key name = blocks_key(key);
	struct gpuwm_block block;
	size_t held;

	CHILD_ASSERT(gpuwm_blocks_hold(t->region, &name, 1, 1, &block, &held) == 0);
	if (held == 0)
		return;
	CHILD_ASSERT(holds_bytes(t->region, &block, key));
	if (dice_percent(&t->dice, 30)) {
		CHILD_ASSERT(gpuwm_blocks_hold_these(t->region, &block, 1, 0) == 0);
		CHILD_ASSERT(gpuwm_blocks_release(t->region, &block, 1) == 0);
	}
	sched_yield();
	CHILD_ASSERT(holds_bytes(t->region, &block, key));
	CHILD_ASSERT(gpuwm_blocks_release(t->region, &block, 1) == 0);
	t->read++;
}

static void *run(void *data)
{
	struct thread *t = data;

	for (unsigned i = 0; i < ROUNDS; i++) {
		const uint32_t key = (uint32_t)dice_throw(&t->dice, KEYS);
		const struct gpuwm_block_key name = blocks_key(key);

		if (dice_percent(&t->dice, 5))
			CHILD_ASSERT(gpuwm_blocks_drop(t->region, &name, 1, NULL) == 0);
		else if (dice_percent(&t->dice, 40))
			fill(t, key);
		else
			read_key(t, key);
	}
	return NULL;
}

/* argv: a seed. */
static int process(int argc, char **argv)
{
	struct thread threads[THREADS] = {0};
	struct gpuwm_client *client;
	struct gpuwm_region *region;

	CHILD_ASSERT(argc == 1);
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(gpuwm_region_open(client, "blocks", GPUWM_REGION_WRITE, 0, &region) == 0);
	for (unsigned i = 0; i < THREADS; i++) {
		threads[i].region = region;
		threads[i].dice.state = strtoull(argv[0], NULL, 10) + i;
		CHILD_ASSERT(pthread_create(&threads[i].thread, NULL, run, &threads[i]) == 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(threads[i].thread, NULL);
		CHILD_ASSERT(threads[i].filled > 0 && threads[i].read > 0);
	}
	CHILD_ASSERT(gpuwm_region_close(region) == 0); /* it owns and holds nothing */
	gpuwm_close(client);
	return 0;
}

GPUWMD_TEST(blocks_threads, share_what_their_process_holds)
{
	struct gpuwm_region_options options = GPUWM_OPTIONS(struct gpuwm_region_options);
	struct gpuwm_client *client = client_new();
	struct gpuwm_blocks_figures figures;
	struct gpuwm_region *region;
	struct process processes[2];

	SKIP_UNLESS(backend() == BACKEND_HOST, "blocks are the same on every memory kind");
	options.name = "blocks";
	options.kind = GPUWM_REGION_BLOCKS;
	options.writers = GPUWM_WRITERS_MANY;
	options.owner = GPUWM_OWNER_UID;
	options.blocks = BLOCKS;
	options.block_bytes = BLOCKS_BYTES;
	OK(gpuwm_region_create(client, &options, &region));
	processes[0] = process_start(process, "1", NULL);
	processes[1] = process_start(process, "1001", NULL);
	process_finish(&processes[0]);
	process_finish(&processes[1]);
	OK(gpuwm_blocks_figures(region, &figures));
	cr_assert(figures.owned == 0 && figures.held == 0 && figures.free + figures.ready == BLOCKS);
	OK(gpuwm_region_remove(client, "blocks"));
	OK(gpuwm_region_close(region));
	gpuwm_close(client);
}
