/* Control memory that a hostile user writes: no function reads outside of it, and none goes on for ever. */
#include "client/region/blocks.h"
#include "base/clock.h"
#include "tests/support/any/between.h"
#include "tests/support/any/until.h"
#include "tests/support/lib/blocks.h"

#include <pthread.h>
#include <stdlib.h>

#define WRITER 0
#define READER 1
#define BLOCKS 16

static struct shared_region shared;
static struct gpuwm_region *writer, *reader;

static void begin(void)
{
	share(&shared, &(struct shared_wish){.blocks = BLOCKS, .block_bytes = BLOCK_BYTES});
	writer = open_as(&shared, WRITER, true);
	reader = open_as(&shared, READER, true);
}

/* What the control memory says does not keep a process from closing. */
static void end(void)
{
	close_as(&shared, reader);
	close_as(&shared, writer);
	share_end(&shared);
}

#define GarbageTest(name, ...) TestBetween(blocks_garbage, name, begin(), end(), .timeout = 120, ##__VA_ARGS__)

static void set_word(uint32_t number, uint64_t state, uint64_t holders, uint64_t slot, uint64_t generation)
{
	atomic_store(&shared.control.blocks.words[number],
		     holders | state << 26 | slot << 28 | generation << 33);
}

/* ---- each part ------------------------------------------------------------------------ */

GarbageTest(slots_that_name_no_block_are_void)
{
	const struct gpuwm_block_key key = key_of(1);
	_Atomic uint64_t *bucket = control_bucket(&shared.control.blocks, key.key);

	for (unsigned i = 0; i < CONTROL_BUCKET_SLOTS; i++)
		atomic_store(&bucket[i], control_slot_of(BLOCKS + i * 10000, 1, key.key));
	cr_assert(eq(sz, find(reader, 1, 1), 0));
	put(writer, 1, 1);
	cr_assert(eq(sz, find(reader, 1, 1), 1));
}

GarbageTest(a_block_of_no_user_is_not_awaited)
{
	const struct gpuwm_block_key key = key_of(1);
	struct gpuwm_block block = reserve_one(writer, 1), held;
	size_t count;

	set_word(block.number, BLOCK_OWNED, 0, 31, block.generation);
	FAILS(gpuwm_blocks_hold(reader, &key, 1, -1, &held, &count), -EUCLEAN);
	SAYS("is filled by user 31, which there is not");
	set_word(block.number, BLOCK_OWNED, 0, 9, block.generation);
	FAILS(gpuwm_blocks_hold_these(reader, &block, 1, -1), -EUCLEAN);
	FAILS(gpuwm_blocks_publish(writer, &block, 1), -ESTALE);
}

GarbageTest(a_full_region_with_damage_says_so)
{
	const struct gpuwm_block_key key = key_of(1);
	struct gpuwm_block block;
	size_t count;

	for (uint32_t i = 0; i < BLOCKS; i++)
		set_word(i, BLOCK_READY, 1, 0, 1);
	FAILS(gpuwm_blocks_reserve(writer, &key, 1, 0, &block, &count), -EAGAIN);
	set_word(3, BLOCK_READY, 1u << 20, 0, 1);
	FAILS(gpuwm_blocks_reserve(writer, &key, 1, 0, &block, &count), -EUCLEAN);
	SAYS("a block is held or filled by a user that there is not");
	set_word(3, BLOCK_FREE, 1, 0, 1);
	FAILS(gpuwm_blocks_reserve(writer, &key, 1, 3, &block, &count), -EUCLEAN);
	SAYS("a block is held that has no bytes");
}

/* A state that there is not counts as READY, so that somebody takes the block, and it is in order again. */
GarbageTest(blocks_of_no_state_are_used_again)
{
	for (uint32_t i = 0; i < BLOCKS; i++)
		set_word(i, 3, 0, 31, i);
	figures_are(writer, 0, 0, BLOCKS, 0);
	put(writer, 1, BLOCKS);
	cr_assert(eq(sz, find(reader, 1, BLOCKS), BLOCKS));
}

GarbageTest(a_hold_whose_bit_is_there_already_holds)
{
	struct gpuwm_block block;

	put(writer, 1, 1);
	block = hold_one(writer, 1);
	OK(gpuwm_blocks_release(writer, &block, 1));
	atomic_fetch_or(&shared.control.blocks.words[block.number], 1u << READER);
	block = hold_one(reader, 1);
	OK(gpuwm_blocks_release(reader, &block, 1));
	figures_are(writer, BLOCKS - 1, 0, 1, 0);
}

GarbageTest(a_hold_that_somebody_has_ended_is_released)
{
	struct gpuwm_block block;

	put(writer, 1, 1);
	block = hold_one(reader, 1);
	set_word(block.number, BLOCK_FREE, 0, 0, 99);
	OK(gpuwm_blocks_release(reader, &block, 1));
	FAILS(gpuwm_blocks_release(reader, &block, 1), -EALREADY);
}

/* ---- all of it, all the time ------------------------------------------------------------ */

static _Atomic bool stopping;

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Half of what it writes looks like something. */
static void *scribble(void *unused)
{
	const uint64_t words = control_bytes(control_shape(&shared.control)) / 8;
	_Atomic uint64_t *memory = (void *)shared.control.head;
	uint64_t state = 42;

	/* gpuwmd would end a region whose head is written over. */
	while (!atomic_load(&stopping)) {
		const uint64_t random = next_random(&state), at = next_random(&state);
		const uint64_t first = CONTROL_HEAD_BYTES / 8;
		const uint64_t small = (random & 7) << 26 | (random >> 8 & 7) << 33 | (random >> 20 & 7);

		atomic_store(&memory[first + at % (words - first)], random >> 40 & 1 ? small : random);
		atomic_store(&shared.control.head->clock, next_random(&state));
		control_ring(&shared.control.head->freed);
	}
	return unused;
}

static void call_all(struct gpuwm_region *region, uint64_t first)
{
	struct gpuwm_block_key keys[BLOCKS];
	struct gpuwm_block blocks[BLOCKS];
	struct gpuwm_blocks_figures figures;
	size_t count;

	keys_from(first, BLOCKS, keys);
	if (gpuwm_blocks_reserve(region, keys, BLOCKS, 1, blocks, &count) == 0) {
		for (size_t i = 0; i < count; i++)
			cr_assert(blocks[i].number < BLOCKS || blocks[i].number == GPUWM_BLOCK_NONE);
		/* Some are not its own any more; it gives up each by itself. */
		for (size_t i = 0; i < count; i++) {
			if (i % 2)
				gpuwm_blocks_publish(region, &blocks[i], 1);
			else
				gpuwm_blocks_abandon(region, &blocks[i], 1);
		}
	}
	if (gpuwm_blocks_hold(region, keys, BLOCKS, 1, blocks, &count) == 0) {
		for (size_t i = 0; i < count; i++)
			OK(gpuwm_block_key_of(region, &blocks[i], &keys[0]));
		OK(gpuwm_blocks_release(region, blocks, count));
	}
	for (uint32_t i = 0; i < BLOCKS; i++)
		blocks[i] = (struct gpuwm_block){i, i % 8};
	if (gpuwm_blocks_hold_these(region, blocks, 1, 0) == 0)
		OK(gpuwm_blocks_release(region, blocks, 1));
	keys_from(first, BLOCKS, keys);
	OK(gpuwm_blocks_find(region, keys, BLOCKS, &count));
	OK(gpuwm_blocks_drop(region, keys, BLOCKS, &count));
	OK(gpuwm_blocks_figures(region, &figures));
}

GarbageTest(a_user_who_scribbles_stops_nobody)
{
	const uint64_t until = clock_steady_ms() + 1500;
	pthread_t thread;
	unsigned rounds = 0;

	atomic_store(&stopping, false);
	cr_assert(eq(int, pthread_create(&thread, NULL, scribble, NULL), 0));
	while (clock_steady_ms() < until) {
		call_all(rounds % 2 ? writer : reader, rounds % 5);
		rounds++;
	}
	atomic_store(&stopping, true);
	pthread_join(thread, NULL);
	cr_assert(gt(u32, rounds, 20));
}
