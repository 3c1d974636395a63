/* Which blocks make room, and for whom: the order of wishes, full regions, full buckets, and keys that are alike. */
#include "tests/support/any/between.h"
#include "tests/support/lib/blocks.h"

#define WRITER 0
#define READER 1
#define OTHER 2
#define BLOCKS 20

static struct shared_region shared;
static struct gpuwm_region *writer, *reader;

static void begin(void)
{
	share(&shared, &(struct shared_wish){.blocks = BLOCKS, .block_bytes = BLOCK_BYTES});
	writer = open_as(&shared, WRITER, true);
	reader = open_as(&shared, READER, true);
}

static void end(void)
{
	close_as(&shared, reader);
	close_as(&shared, writer);
	share_end(&shared);
}

#define EvictTest(name) TestBetween(blocks_evict, name, begin(), end(), .timeout = 60)

/* Which of the keys from 0 on are READY, as text: '1' or '0' for each. */
static const char *ready(unsigned count)
{
	static char text[100];

	for (unsigned i = 0; i < count; i++)
		text[i] = is_ready(writer, i) ? '1' : '0';
	text[count] = 0;
	return text;
}

#define READY_ARE(text) cr_assert(eq(str, (char *)ready((unsigned)strlen(text)), (char *)(text)))

/* ---- the order of wishes -------------------------------------------------------------- */

EvictTest(the_block_that_was_wanted_longest_ago_goes_first)
{
	for (unsigned i = 0; i < BLOCKS; i++)
		put(writer, i, 1);
	put(writer, 100, 1);
	READY_ARE("01111111111111111111");
	cr_assert(eq(sz, find(reader, 1, 1), 1)); /* now it was wanted last */
	put(reader, 101, 2);
	READY_ARE("01001111111111111111");
	figures_are(writer, 0, 0, BLOCKS, 0);
}

EvictTest(of_keys_that_were_wanted_together_the_last_ones_go_first)
{
	put(writer, 0, 10);
	put(writer, 10, 10);
	put(writer, 100, 3);
	READY_ARE("11111110001111111111");
	put(writer, 103, 8);
	READY_ARE("00000000001111111110");
}

EvictTest(every_kind_of_wish_counts)
{
	const struct gpuwm_block_key keys[] = {key_of(3), key_of(4)};
	struct gpuwm_block blocks[2];
	size_t done;

	for (unsigned i = 0; i < BLOCKS; i++)
		put(writer, i, 1);
	cr_assert(eq(sz, find(reader, 0, 1), 1));
	blocks[0] = hold_one(reader, 1);
	blocks[1] = hold_one(reader, 2);
	OK(gpuwm_blocks_release(reader, blocks, 2));
	OK(gpuwm_blocks_reserve(writer, keys, 2, 0, blocks, &done));
	cr_assert(blocks[0].number == GPUWM_BLOCK_NONE && blocks[1].number == GPUWM_BLOCK_NONE);
	put(writer, 100, 15);
	READY_ARE("11111000000000000000");
	/* Held by numbers: 4 was wanted longest ago, 3 behind it, 0 before both. */
	blocks[0] = hold_one(reader, 0);
	OK(gpuwm_blocks_hold_these(reader, blocks, 1, 0));
	OK(gpuwm_blocks_release(reader, (struct gpuwm_block[]){blocks[0], blocks[0]}, 2));
	put(writer, 115, 2);
	READY_ARE("10011000000000000000");
}

EvictTest(free_blocks_are_taken_first)
{
	const struct gpuwm_block_key key = key_of(7);

	put(writer, 0, BLOCKS);
	OK(gpuwm_blocks_drop(writer, &key, 1, NULL));
	put(reader, 100, 1);
	READY_ARE("11111110111111111111");
}

EvictTest(the_keys_of_a_call_do_not_evict_each_other)
{
	struct gpuwm_block_key keys[3];
	struct gpuwm_block blocks[3];
	size_t done;

	for (unsigned i = 0; i < BLOCKS; i++)
		put(writer, i, 1);
	keys[0] = key_of(100);
	keys[1] = key_of(0); /* the next one to be evicted, were it not wanted */
	keys[2] = key_of(101);
	OK(gpuwm_blocks_reserve(writer, keys, 3, 0, blocks, &done));
	cr_assert(eq(sz, done, 3));
	cr_assert(eq(u32, blocks[1].number, GPUWM_BLOCK_NONE));
	READY_ARE("10011111111111111111");
	OK(gpuwm_blocks_publish(writer, blocks, 3));
}

/* ---- regions that are full ---------------------------------------------------------------- */

static size_t reserve(struct gpuwm_region *region, uint64_t first, size_t count, struct gpuwm_block *ret)
{
	struct gpuwm_block_key keys[BLOCKS + 10];
	size_t done;

	keys_from(first, count, keys);
	OK(gpuwm_blocks_reserve(region, keys, count, 0, ret, &done));
	return done;
}

EvictTest(what_is_held_or_owned_is_never_evicted)
{
	struct gpuwm_block blocks[BLOCKS + 10], held[5], more;
	const struct gpuwm_block_key key = key_of(200);
	size_t done;

	put(writer, 0, 5);
	for (unsigned i = 0; i < 5; i++)
		held[i] = hold_one(reader, i);
	cr_assert(eq(sz, reserve(writer, 100, BLOCKS + 10, blocks), BLOCKS - 5));
	figures_are(writer, 0, BLOCKS - 5, 0, 5);
	FAILS(gpuwm_blocks_reserve(reader, &key, 1, 0, &more, &done), -EAGAIN);
	SAYS("of 20 blocks, 15 are being filled and 5 are held. process 1000 (user-a) has most of them, 15");
	FAILS(gpuwm_blocks_reserve(reader, &key, 1, 3, &more, &done), -EAGAIN);
	for (unsigned i = 0; i < 5; i++)
		cr_assert(eq(u8, read_block(reader, held[i].number), put_byte(i)));
	OK(gpuwm_blocks_release(reader, held, 5));
	OK(gpuwm_blocks_reserve(reader, &key, 1, 0, &more, &done));
	OK(gpuwm_blocks_publish(writer, blocks, BLOCKS - 5));
	OK(gpuwm_blocks_publish(reader, &more, 1));
	figures_are(writer, 0, 0, BLOCKS, 0);
}

EvictTest(a_region_full_of_held_blocks_names_who_holds_most)
{
	struct gpuwm_region *other = open_as(&shared, OTHER, false);
	struct gpuwm_block blocks[BLOCKS], one;
	const struct gpuwm_block_key key = key_of(200);
	size_t done;

	put(writer, 0, BLOCKS);
	for (unsigned i = 0; i < BLOCKS; i++)
		blocks[i] = hold_one(other, i);
	one = hold_one(reader, 0);
	FAILS(gpuwm_blocks_reserve(writer, &key, 1, 0, &one, &done), -EAGAIN);
	SAYS("0 are being filled and 20 are held. process 1002 (user-c) has most of them, 20");
	/* Keys that are there need no room. */
	cr_assert(eq(sz, reserve(writer, 0, BLOCKS, blocks), BLOCKS));
	for (unsigned i = 0; i < BLOCKS; i++)
		cr_assert(eq(u32, blocks[i].number, GPUWM_BLOCK_NONE));
	has_exited(&shared, OTHER);
	figures_are(writer, 0, 0, BLOCKS - 1, 1);
	one = hold_one(reader, 0);
	OK(gpuwm_blocks_release(reader, (struct gpuwm_block[]){one, one}, 2));
	put(writer, 200, BLOCKS);
	blocks_free(other->blocks);
	region_free(other);
}

/* ---- buckets ------------------------------------------------------------------------------------ */

static struct gpuwm_block put_in_bucket(uint64_t number)
{
	const struct gpuwm_block_key key = key_of_bucket(number);
	struct gpuwm_block block;
	size_t done;

	OK(gpuwm_blocks_reserve(writer, &key, 1, 0, &block, &done));
	OK(gpuwm_blocks_publish(writer, &block, 1));
	return block;
}

static bool is_in_bucket(uint64_t number)
{
	const struct gpuwm_block_key key = key_of_bucket(number);
	size_t found;

	OK(gpuwm_blocks_find(reader, &key, 1, &found));
	return found == 1;
}

EvictTest(the_17th_key_of_a_bucket_takes_the_place_of_the_one_wanted_longest_ago)
{
	for (uint64_t i = 0; i < CONTROL_BUCKET_SLOTS; i++)
		put_in_bucket(i);
	cr_assert(is_in_bucket(0)); /* now 1 was wanted longest ago */
	put_in_bucket(16);
	for (uint64_t i = 0; i <= CONTROL_BUCKET_SLOTS; i++)
		cr_assert(is_in_bucket(i) == (i != 1), "key %d", (int)i);
	/* What was dropped for the slot is FREE: there are blocks enough. */
	figures_are(writer, BLOCKS - 16, 0, 16, 0);
}

EvictTest(a_bucket_of_blocks_in_use_has_no_room)
{
	const struct gpuwm_block_key key = key_of_bucket(16), far = {.key = {1, 1}};
	struct gpuwm_block held[16], blocks[2];
	size_t count;

	for (uint64_t i = 0; i < CONTROL_BUCKET_SLOTS; i++) {
		const struct gpuwm_block_key one = key_of_bucket(i);

		put_in_bucket(i);
		OK(gpuwm_blocks_hold(reader, &one, 1, 0, &held[i], &count));
	}
	FAILS(gpuwm_blocks_reserve(writer, &key, 1, 0, blocks, &count), -EAGAIN);
	SAYS("no room for a block of this key, whose bucket is full");
	figures_are(writer, BLOCKS - 16, 0, 0, 16);
	OK(gpuwm_blocks_reserve(writer, (struct gpuwm_block_key[]){far, key}, 2, 0, blocks, &count));
	cr_assert(eq(sz, count, 1));
	OK(gpuwm_blocks_publish(writer, blocks, 1));
	OK(gpuwm_blocks_release(reader, &held[5], 1));
	put_in_bucket(16);
	cr_assert(is_in_bucket(5) == false && is_in_bucket(16));
	held[5] = held[15];
	OK(gpuwm_blocks_release(reader, held, 15));
}

EvictTest(who_waits_for_room_in_a_bucket_evicts_nothing_and_sleeps)
{
	const _Atomic uint32_t *rung = &writer->control.head->freed.rung;
	const struct gpuwm_block_key key = key_of_bucket(16);
	struct gpuwm_block held[CONTROL_BUCKET_SLOTS], block;
	uint32_t before;
	size_t count;

	for (uint64_t i = 0; i < CONTROL_BUCKET_SLOTS; i++) {
		const struct gpuwm_block_key one = key_of_bucket(i);

		put_in_bucket(i);
		OK(gpuwm_blocks_hold(reader, &one, 1, 0, &held[i], &count));
	}
	put(writer, 2, BLOCKS - CONTROL_BUCKET_SLOTS); /* in other buckets */
	before = atomic_load(rung);
	FAILS(gpuwm_blocks_reserve(writer, &key, 1, 50, &block, &count), -EAGAIN);
	SAYS("no room for a block of this key, whose bucket is full");
	figures_are(writer, 0, 0, BLOCKS - CONTROL_BUCKET_SLOTS, CONTROL_BUCKET_SLOTS);
	cr_assert(eq(u32, atomic_load(rung), before));
	OK(gpuwm_blocks_release(reader, held, CONTROL_BUCKET_SLOTS));
}

EvictTest(slots_of_blocks_that_are_gone_are_used_again)
{
	for (uint64_t i = 0; i < 3 * BLOCKS; i++) {
		const struct gpuwm_block_key key = key_of_bucket(i);

		put_in_bucket(i);
		cr_assert(is_in_bucket(i));
		if (i % 2)
			OK(gpuwm_blocks_drop(writer, &key, 1, NULL));
	}
	/* The last one was dropped, after another one had made room for it. */
	figures_are(writer, BLOCKS - 15, 0, 15, 0);
}

/* ---- keys that are alike -------------------------------------------------------------------------- */

EvictTest(a_key_with_another_check_is_another_key)
{
	struct gpuwm_block_key a = key_of(1), b = a, c = a, found;
	struct gpuwm_block first, second;
	size_t count;

	b.check++;
	c.key[1]++;
	first = reserve_one(writer, 1);
	OK(gpuwm_blocks_publish(writer, &first, 1));
	OK(gpuwm_blocks_find(reader, &b, 1, &count));
	cr_assert(eq(sz, count, 0));
	OK(gpuwm_blocks_find(reader, &c, 1, &count));
	cr_assert(eq(sz, count, 0));
	OK(gpuwm_blocks_reserve(writer, &b, 1, 0, &second, &count));
	cr_assert(ne(u32, second.number, GPUWM_BLOCK_NONE));
	OK(gpuwm_blocks_publish(writer, &second, 1));
	OK(gpuwm_blocks_hold(reader, &b, 1, 0, &first, &count));
	cr_assert(first.number == second.number);
	OK(gpuwm_block_key_of(reader, &first, &found));
	cr_assert(memcmp(&found, &b, sizeof(b)) == 0);
	OK(gpuwm_blocks_release(reader, &first, 1));
}

/* As two processes that reserve at the same moment do: the second one has not seen the first one's slot. */
EvictTest(a_key_may_have_two_blocks)
{
	const struct gpuwm_block_key key = key_of(1);
	_Atomic uint64_t *bucket = control_bucket(&writer->control.blocks, key.key);
	struct gpuwm_block first = reserve_one(writer, 1), second, held;
	const uint64_t slot = atomic_load(bucket);
	size_t count;

	atomic_store(bucket, 0);
	second = reserve_one(reader, 1);
	atomic_store(bucket + 1, slot);
	OK(gpuwm_blocks_publish(writer, &first, 1));
	/* The one that is READY is found, not the one that is still being filled. */
	OK(gpuwm_blocks_hold(writer, &key, 1, -1, &held, &count));
	cr_assert(count == 1 && held.number == first.number);
	OK(gpuwm_blocks_release(writer, &held, 1));
	OK(gpuwm_blocks_publish(reader, &second, 1));
	figures_are(writer, BLOCKS - 2, 0, 2, 0);
	OK(gpuwm_blocks_drop(writer, &key, 1, &count));
	cr_assert(eq(sz, count, 2));
	figures_are(writer, BLOCKS, 0, 0, 0);
}
