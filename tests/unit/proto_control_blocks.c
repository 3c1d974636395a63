/* The blocks in the control memory: where its parts are, slots of the index, and what gpuwmd does. */
#include "proto/control_blocks.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(control_blocks);

static const uint32_t counts[] = {1, 2, 3, 4, 5, 1000, 4096, REGION_BLOCKS_MAX - 1, REGION_BLOCKS_MAX};
#define COUNTS (sizeof(counts) / sizeof(counts[0]))

static void parts_are_in_order(uint32_t count)
{
	char *base = (char *)64;
	const struct control_blocks blocks = control_blocks_at(base, count);
	const uint64_t slots = (uint64_t)blocks.buckets * CONTROL_BUCKET_SLOTS;

	cr_assert_eq(blocks.count, count);
	cr_assert((char *)blocks.index == base);
	cr_assert((char *)blocks.words == base + slots * 8);
	cr_assert((char *)blocks.used == (char *)blocks.words + count * 8ull);
	cr_assert((char *)blocks.names == (char *)blocks.used + count * 8ull);
	cr_assert_eq((uint64_t)((char *)(blocks.names + count) - base), control_blocks_bytes(count));
	cr_assert((blocks.buckets & (blocks.buckets - 1)) == 0);
	cr_assert(slots >= (uint64_t)count * CONTROL_SLOTS_PER_BLOCK);
	cr_assert(blocks.buckets == 1 || slots / 2 < (uint64_t)count * CONTROL_SLOTS_PER_BLOCK);
}

Test(control_blocks, its_parts_lie_one_behind_the_other)
{
	for (size_t i = 0; i < COUNTS; i++)
		parts_are_in_order(counts[i]);
	cr_assert_eq(control_blocks_bytes(0), 0);
	/* Some 80 bytes a block: base/limits.h. */
	cr_assert_eq(control_blocks_bytes(REGION_BLOCKS_MAX), REGION_BLOCKS_MAX * 72ull);
}

Test(control_blocks, a_slot_names_its_block)
{
	const uint32_t numbers[] = {0, 1, REGION_BLOCKS_MAX - 1, REGION_BLOCKS_MAX};
	const uint64_t key[] = {3, UINT64_MAX - 1}, alike[] = {4, 0x1ffe}, other[] = {3, 0x1fff};
	const uint32_t generations[] = {0, 1, BLOCK_GENERATION_MAX};
	uint32_t number, generation;

	for (unsigned i = 0; i < 12; i++) {
		const uint64_t slot = control_slot_of(numbers[i % 4], generations[i / 4], i % 2 ? key : alike);

		cr_assert(slot != 0);
		cr_assert(control_slot_names(slot, &number, &generation));
		cr_assert(control_slot_has_tag(slot, key) && control_slot_has_tag(slot, alike));
		cr_assert(!control_slot_has_tag(slot, other));
		cr_assert(number == numbers[i % 4] && generation == generations[i / 4]);
	}
	cr_assert(!control_slot_names(0, &number, &generation));
	cr_assert(!control_slot_names(UINT32_MAX, &number, &generation));
	cr_assert(!control_slot_names(control_slot_tag(key), &number, &generation));
	cr_assert(control_slot_names(UINT64_MAX, &number, &generation) && number >= REGION_BLOCKS_MAX);
}

Test(control_blocks, a_key_has_one_bucket_inside_the_index)
{
	for (size_t i = 0; i < COUNTS; i++) {
		const struct control_blocks blocks = control_blocks_at((void *)64, counts[i]);
		const uint64_t most = UINT64_MAX;

		for (uint64_t key = 0; key < 2ull * blocks.buckets; key++) {
			const uint64_t keys[] = {key, most};

			cr_assert(control_bucket(&blocks, keys) ==
				  blocks.index + key % blocks.buckets * CONTROL_BUCKET_SLOTS);
		}
		cr_assert(control_bucket(&blocks, (uint64_t[]){most, 0}) + CONTROL_BUCKET_SLOTS ==
			  blocks.words);
	}
}

/* ---- gpuwmd's part ------------------------------------------------------------------- */

static struct control_blocks make(uint32_t count)
{
	return control_blocks_at(calloc(1, control_blocks_bytes(count)), count);
}

static void set(const struct control_blocks *blocks, uint32_t number, enum block_state state, uint64_t holders,
		uint64_t writer)
{
	atomic_store(&blocks->words[number],
		     holders | (uint64_t)state << 26 | writer << 28 | UINT64_C(7) << 33);
}

Test(control_blocks, forgets_what_a_user_owned_and_held)
{
	struct control_blocks blocks = make(6);

	set(&blocks, 0, BLOCK_OWNED, 0, 4);
	set(&blocks, 1, BLOCK_OWNED, 0, 5);
	set(&blocks, 2, BLOCK_READY, 1u << 4, 5);
	set(&blocks, 3, BLOCK_READY, 1u << 4 | 1u << 5, 4);
	set(&blocks, 4, BLOCK_READY, 1u << 5, 4);
	cr_assert_eq(control_blocks_forget(&blocks, 4), 3);
	cr_assert_eq(control_blocks_forget(&blocks, 4), 0);
	cr_assert_eq(block_word_state(blocks.words[0]), BLOCK_FREE);
	cr_assert_eq(block_word_generation(blocks.words[0]), 7);
	cr_assert_eq(block_word_state(blocks.words[1]), BLOCK_OWNED);
	cr_assert_eq(block_word_holders(blocks.words[2]), 0);
	cr_assert_eq(block_word_state(blocks.words[2]), BLOCK_READY);
	cr_assert_eq(block_word_holders(blocks.words[3]), 1u << 5);
	cr_assert_eq(block_word_holders(blocks.words[4]), 1u << 5);
	cr_assert_eq(blocks.words[5], 0);
	free((void *)blocks.index);
}

static void is_damaged(enum block_state state, uint64_t holders, uint64_t writer, const char *text)
{
	struct control_blocks blocks = make(3);
	const char *found;

	set(&blocks, 2, state, holders, writer);
	found = control_blocks_damage(&blocks, 3);
	cr_assert(text ? found && strcmp(found, text) == 0 : !found, "%s", found ? found : "nothing");
	free((void *)blocks.index);
}

Test(control_blocks, damage_is_what_no_user_writes)
{
	is_damaged(BLOCK_FREE, 0, 0, NULL);
	is_damaged(BLOCK_FREE, 0, 9, NULL);
	is_damaged(BLOCK_OWNED, 0, 1, NULL);
	is_damaged(BLOCK_READY, 3, 0, NULL);
	is_damaged((enum block_state)3, 0, 0, "a block has a state that there is not");
	is_damaged(BLOCK_READY, 4, 0, "a block is held by a user that there is not");
	is_damaged(BLOCK_OWNED, 1, 0, "a block is held that has no bytes");
	is_damaged(BLOCK_FREE, 1, 0, "a block is held that has no bytes");
	is_damaged(BLOCK_OWNED, 0, 2, "a block was written by a user that there is not");
	is_damaged(BLOCK_READY, 0, 31, "a block was written by a user that there is not");
}
