/* Blocks of a region as processes fill and read them: what each function does, and how it fails. */
#include "tests/support/any/between.h"
#include "tests/support/any/child.h"
#include "tests/support/fail_alloc.h"
#include "tests/support/lib/blocks.h"

#define WRITER 0
#define READER 1
#define OTHER 2
#define BLOCKS 8

static struct shared_region shared;
static struct gpuwm_region *writer, *reader;

static void begin(void)
{
	share(&shared, &(struct shared_wish){.blocks = BLOCKS, .block_bytes = BLOCK_BYTES});
	writer = open_as(&shared, WRITER, true);
	reader = open_as(&shared, READER, false);
}

static void end(void)
{
	close_as(&shared, reader);
	close_as(&shared, writer);
	share_end(&shared);
}

#define BlocksTest(name) TestBetween(blocks, name, begin(), end(), .timeout = 60)

static const struct gpuwm_block none = {.number = GPUWM_BLOCK_NONE};

/* ---- filling ------------------------------------------------------------------------ */

BlocksTest(what_is_published_is_found_and_read)
{
	struct gpuwm_block_key keys[4], key;
	struct gpuwm_block blocks[4];
	size_t held;

	put(writer, 10, 3);
	figures_are(reader, BLOCKS - 3, 0, 3, 0);
	keys_from(10, 4, keys);
	OK(gpuwm_blocks_hold(reader, keys, 4, 0, blocks, &held));
	cr_assert(eq(sz, held, 3));
	figures_are(writer, BLOCKS - 3, 0, 0, 3);
	for (size_t i = 0; i < held; i++) {
		cr_assert(eq(u8, read_block(reader, blocks[i].number), put_byte(10 + i)));
		OK(gpuwm_block_key_of(reader, &blocks[i], &key));
		cr_assert(memcmp(&key, &keys[i], sizeof(key)) == 0);
	}
	OK(gpuwm_blocks_release(reader, blocks, held));
	figures_are(writer, BLOCKS - 3, 0, 3, 0);
}

BlocksTest(a_block_that_is_being_filled_is_not_found)
{
	const struct gpuwm_block_key key = key_of(1);
	struct gpuwm_block block = reserve_one(writer, 1), held;
	size_t count;

	figures_are(reader, BLOCKS - 1, 1, 0, 0);
	cr_assert(eq(sz, find(reader, 1, 1), 0));
	OK(gpuwm_blocks_hold(reader, &key, 1, 0, &held, &count));
	cr_assert(eq(sz, count, 0));
	OK(gpuwm_blocks_publish(writer, &block, 1));
	cr_assert(eq(sz, find(reader, 1, 1), 1));
}

BlocksTest(a_key_that_is_there_or_being_filled_gets_no_block)
{
	struct gpuwm_block_key keys[4];
	struct gpuwm_block blocks[4];
	struct gpuwm_block filling = reserve_one(writer, 1);
	size_t done;

	put(writer, 2, 1);
	keys_from(1, 4, keys);
	keys[3] = keys[2]; /* the same key twice */
	OK(gpuwm_blocks_reserve(writer, keys, 4, 0, blocks, &done));
	cr_assert(eq(sz, done, 4));
	cr_assert(blocks[0].number == GPUWM_BLOCK_NONE && blocks[1].number == GPUWM_BLOCK_NONE);
	cr_assert(blocks[2].number != GPUWM_BLOCK_NONE && blocks[3].number == GPUWM_BLOCK_NONE);
	figures_are(writer, BLOCKS - 3, 2, 1, 0);
	OK(gpuwm_blocks_publish(writer, blocks, 4));
	OK(gpuwm_blocks_publish(writer, &filling, 1));
	OK(gpuwm_blocks_reserve(writer, keys, 4, 0, blocks, &done));
	cr_assert(done == 4 && blocks[2].number == GPUWM_BLOCK_NONE);
	figures_are(writer, BLOCKS - 3, 0, 3, 0);
}

BlocksTest(abandoned_blocks_are_free)
{
	struct gpuwm_block block = reserve_one(writer, 1);

	OK(gpuwm_blocks_abandon(writer, &block, 1));
	figures_are(writer, BLOCKS, 0, 0, 0);
	cr_assert(eq(sz, find(reader, 1, 1), 0));
	FAILS(gpuwm_blocks_abandon(writer, &block, 1), -ESTALE);
	FAILS(gpuwm_blocks_publish(writer, &block, 1), -ESTALE);
	put(writer, 1, 1);
}

BlocksTest(only_what_is_owned_is_published_and_all_or_nothing)
{
	struct gpuwm_block blocks[] = {reserve_one(writer, 1), none, reserve_one(writer, 2)};
	struct gpuwm_block bad[] = {blocks[0], blocks[2], {blocks[0].number, blocks[0].generation + 1}};
	struct gpuwm_block far[] = {blocks[0], {.number = BLOCKS}}, twice[] = {blocks[0], blocks[0]};

	FAILS(gpuwm_blocks_publish(reader, blocks, 3), -ESTALE);
	SAYS("block 0 of region blocks");
	FAILS(gpuwm_blocks_publish(writer, bad, 3), -ESTALE);
	FAILS(gpuwm_blocks_publish(writer, far, 2), -ESTALE);
	FAILS(gpuwm_blocks_publish(writer, twice, 2), -ESTALE);
	FAILS(gpuwm_blocks_abandon(writer, twice, 2), -ESTALE);
	figures_are(writer, BLOCKS - 2, 2, 0, 0);
	OK(gpuwm_blocks_publish(writer, blocks, 3));
	FAILS(gpuwm_blocks_publish(writer, blocks, 3), -ESTALE);
	FAILS(gpuwm_blocks_abandon(writer, blocks, 1), -ESTALE);
	figures_are(writer, BLOCKS - 2, 0, 2, 0);
	OK(gpuwm_blocks_publish(writer, NULL, 0));
}

BlocksTest(who_may_not_write_fills_and_drops_nothing)
{
	const struct gpuwm_block_key key = key_of(1);
	struct gpuwm_block block;
	size_t done;

	FAILS(gpuwm_blocks_reserve(reader, &key, 1, 0, &block, &done), -EACCES);
	SAYS("can't fill blocks of region blocks");
	FAILS(gpuwm_blocks_drop(reader, &key, 1, NULL), -EACCES);
}

BlocksTest(no_keys_are_no_error)
{
	size_t count = 9;

	OK(gpuwm_blocks_reserve(writer, NULL, 0, 0, NULL, &count));
	cr_assert(eq(sz, count, 0));
	count = 9;
	OK(gpuwm_blocks_hold(reader, NULL, 0, 0, NULL, &count));
	cr_assert(eq(sz, count, 0));
	count = 9;
	OK(gpuwm_blocks_find(reader, NULL, 0, &count));
	cr_assert(eq(sz, count, 0));
	OK(gpuwm_blocks_drop(writer, NULL, 0, NULL));
	OK(gpuwm_blocks_release(reader, NULL, 0));
	OK(gpuwm_blocks_hold_these(reader, NULL, 0, 0));
}

/* ---- holding ------------------------------------------------------------------------- */

BlocksTest(a_block_is_held_until_each_hold_is_released)
{
	struct gpuwm_block first, second;

	put(writer, 1, 1);
	first = hold_one(reader, 1);
	second = hold_one(reader, 1);
	cr_assert(first.number == second.number && first.generation == second.generation);
	OK(gpuwm_blocks_release(reader, &first, 1));
	figures_are(writer, BLOCKS - 1, 0, 0, 1);
	OK(gpuwm_blocks_release(reader, &second, 1));
	figures_are(writer, BLOCKS - 1, 0, 1, 0);
	FAILS(gpuwm_blocks_release(reader, &first, 1), -EALREADY);
	SAYS("does not hold use 1 of block");
}

BlocksTest(a_release_of_too_much_releases_nothing)
{
	struct gpuwm_block two[2], far[2], old[2];

	put(writer, 1, 2);
	two[0] = two[1] = hold_one(reader, 1);
	far[0] = far[1] = old[0] = old[1] = two[0];
	far[1].number = BLOCKS;
	old[1].generation--;
	FAILS(gpuwm_blocks_release(reader, two, 2), -EALREADY);
	FAILS(gpuwm_blocks_release(reader, far, 2), -EALREADY);
	FAILS(gpuwm_blocks_release(reader, old, 2), -EALREADY);
	FAILS(gpuwm_blocks_release(writer, two, 1), -EALREADY);
	figures_are(writer, BLOCKS - 2, 0, 1, 1);
	hold_one(reader, 1);
	OK(gpuwm_blocks_release(reader, two, 2));
	figures_are(writer, BLOCKS - 2, 0, 2, 0);
}

BlocksTest(several_processes_hold_one_block)
{
	struct gpuwm_block block;

	put(writer, 1, 1);
	block = hold_one(reader, 1);
	hold_one(writer, 1);
	OK(gpuwm_blocks_release(reader, &block, 1));
	figures_are(reader, BLOCKS - 1, 0, 0, 1);
	OK(gpuwm_blocks_release(writer, &block, 1));
	figures_are(reader, BLOCKS - 1, 0, 1, 0);
}

BlocksTest(blocks_are_held_by_their_numbers)
{
	struct gpuwm_block blocks[3] = {none, none, none};

	put(writer, 1, 2);
	blocks[0] = hold_one(writer, 1);
	blocks[2] = hold_one(writer, 2);
	OK(gpuwm_blocks_hold_these(reader, blocks, 3, 0));
	OK(gpuwm_blocks_release(writer, blocks, 3));
	figures_are(reader, BLOCKS - 2, 0, 0, 2);
	OK(gpuwm_blocks_release(reader, blocks, 3));
	figures_are(reader, BLOCKS - 2, 0, 2, 0);
}

BlocksTest(blocks_that_are_gone_are_not_held_by_their_numbers)
{
	const struct gpuwm_block_key key = key_of(2);
	struct gpuwm_block blocks[2], far[2], filling[2];
	size_t dropped;

	put(writer, 1, 2);
	blocks[0] = hold_one(writer, 1);
	blocks[1] = hold_one(writer, 2);
	OK(gpuwm_blocks_release(writer, blocks, 2));
	far[0] = filling[0] = blocks[0];
	far[1].number = BLOCKS;
	FAILS(gpuwm_blocks_hold_these(reader, far, 2, 0), -ESTALE);
	OK(gpuwm_blocks_drop(writer, &key, 1, &dropped));
	cr_assert(eq(sz, dropped, 1));
	FAILS(gpuwm_blocks_hold_these(reader, blocks, 2, -1), -ESTALE);
	SAYS("is not there any more");
	blocks[1].generation--;
	FAILS(gpuwm_blocks_hold_these(reader, blocks, 2, -1), -ESTALE);
	filling[1] = reserve_one(writer, 3);
	FAILS(gpuwm_blocks_hold_these(reader, filling, 2, 3), -EAGAIN);
	SAYS("process 1000 (user-a)");
	figures_are(writer, BLOCKS - 2, 1, 1, 0);
	OK(gpuwm_blocks_publish(writer, &filling[1], 1));
	OK(gpuwm_blocks_hold_these(reader, filling, 2, 0));
	OK(gpuwm_blocks_release(reader, filling, 2));
}

BlocksTest(a_key_is_told_of_blocks_that_are_owned_or_held)
{
	struct gpuwm_block block = reserve_one(writer, 1), far = {.number = BLOCKS};
	struct gpuwm_block_key key;

	OK(gpuwm_block_key_of(writer, &block, &key));
	cr_assert(eq(u64, key.key[1], 1));
	FAILS(gpuwm_block_key_of(reader, &block, &key), -EALREADY);
	FAILS(gpuwm_block_key_of(reader, &far, &key), -EALREADY);
	FAILS(gpuwm_block_key_of(reader, &none, &key), -EALREADY);
	FAILS(gpuwm_block_key_of(reader, NULL, &key), -EINVAL);
	OK(gpuwm_blocks_publish(writer, &block, 1));
	FAILS(gpuwm_block_key_of(writer, &block, &key), -EALREADY);
}

BlocksTest(blocks_lie_one_behind_the_other)
{
	char *address = gpuwm_region_address(writer);

	cr_assert(gpuwm_block_address(writer, 0) == address);
	cr_assert(gpuwm_block_address(writer, BLOCKS - 1) == address + (BLOCKS - 1) * BLOCK_BYTES);
	cr_assert(gpuwm_block_address(writer, BLOCKS) == NULL);
	cr_assert(gpuwm_block_address(writer, GPUWM_BLOCK_NONE) == NULL);
	cr_assert(gpuwm_block_address(NULL, 0) == NULL);
}

/* ---- dropping ------------------------------------------------------------------------- */

BlocksTest(ready_blocks_are_dropped_and_no_others)
{
	struct gpuwm_block_key keys[4];
	struct gpuwm_block held, filling;
	size_t dropped;

	put(writer, 1, 2);
	held = hold_one(reader, 2);
	filling = reserve_one(writer, 3);
	keys_from(1, 4, keys);
	OK(gpuwm_blocks_drop(writer, keys, 4, &dropped));
	cr_assert(eq(sz, dropped, 1));
	figures_are(writer, BLOCKS - 2, 1, 0, 1);
	OK(gpuwm_blocks_release(reader, &held, 1));
	OK(gpuwm_blocks_publish(writer, &filling, 1));
	OK(gpuwm_blocks_drop(writer, keys, 4, NULL));
	figures_are(writer, BLOCKS, 0, 0, 0);
}

/* ---- looking only ------------------------------------------------------------------------ */

BlocksTest(who_only_looks_holds_blocks_without_their_memory)
{
	struct gpuwm_region *looker = open_to_look(&shared, OTHER);
	const struct gpuwm_block_key key = key_of(2);
	struct gpuwm_block block;
	size_t done;

	put(writer, 1, 1);
	cr_assert(gpuwm_region_address(looker) == NULL);
	cr_assert(gpuwm_block_address(looker, 0) == NULL);
	block = hold_one(looker, 1);
	FAILS(gpuwm_blocks_reserve(looker, &key, 1, 0, &block, &done), -EACCES);
	FAILS(gpuwm_blocks_release_in_stream(looker, &block, 1, NULL), -ENOTSUP);
	SAYS("to look only");
	FAILS(gpuwm_region_reach(looker, "GPU-00000000-0000-0000-0000-000000000000"), -ENOTSUP);
	OK(gpuwm_blocks_release(looker, &block, 1));
	FAILS(gpuwm_blocks_drop(looker, &key, 1, &done), -EACCES);
	close_as(&shared, looker);
}

/* ---- all of them --------------------------------------------------------------------------- */

/* Each function of gpuwm/blocks.h that can fail. */
#define LAST_FUNCTION 11
static int call(struct gpuwm_region *region, unsigned function)
{
	const struct gpuwm_block_key key = key_of(1);
	struct gpuwm_block block = none;
	struct gpuwm_blocks_figures figures;
	struct gpuwm_block_key ret;
	size_t count;

	switch (function) {
	case 0:
		return gpuwm_blocks_figures(region, &figures);
	case 1:
		return gpuwm_blocks_publish(region, &block, 1);
	case 2:
		return gpuwm_blocks_abandon(region, &block, 1);
	case 3:
		return gpuwm_blocks_publish_in_stream(region, &block, 1, NULL);
	case 4:
		return gpuwm_blocks_release(region, &block, 1);
	case 5:
		return gpuwm_blocks_release_in_stream(region, &block, 1, NULL);
	case 6:
		return gpuwm_block_key_of(region, &block, &ret);
	case 7:
		return gpuwm_blocks_reserve(region, &key, 1, 0, &block, &count);
	case 8:
		return gpuwm_blocks_find(region, &key, 1, &count);
	case 9:
		return gpuwm_blocks_hold(region, &key, 1, 0, &block, &count);
	case 10:
		return gpuwm_blocks_hold_these(region, &block, 1, 0);
	default:
		return gpuwm_blocks_drop(region, &key, 1, &count);
	}
}

static int wrong_calls(struct gpuwm_region *region, int code, unsigned first)
{
	int wrong = 0;

	for (unsigned i = first; i <= LAST_FUNCTION; i++)
		wrong += call(region, i) != code;
	return wrong;
}

BlocksTest(a_region_of_another_kind_has_none)
{
	struct shared_region pools;
	struct gpuwm_region *pool;

	share(&pools, &(struct shared_wish){.bytes = MIB(2), .chunks = 8});
	pool = open_as(&pools, WRITER, true);
	cr_assert(eq(int, wrong_calls(pool, -EINVAL, 0), 0));
	SAYS("is of kind pool, not blocks");
	cr_assert(eq(int, wrong_calls(NULL, -EINVAL, 0), 0));
	close_as(&pools, pool);
	share_end(&pools);
}

BlocksTest(a_forked_child_can_use_none)
{
	put(writer, 1, 1);
	cr_assert(eq(int, IN_CHILD(wrong_calls(writer, -ECHILD, 0)), 0));
}

BlocksTest(a_list_that_is_null_is_refused)
{
	size_t count;

	FAILS(gpuwm_blocks_reserve(writer, NULL, 1, 0, NULL, &count), -EINVAL);
	FAILS(gpuwm_blocks_find(writer, NULL, 1, &count), -EINVAL);
	FAILS(gpuwm_blocks_publish(writer, NULL, 1), -EINVAL);
	FAILS(gpuwm_blocks_release_in_stream(writer, NULL, 1, NULL), -EINVAL);
}

/* What a process has is given back in a region that has ended too. */
BlocksTest(a_region_that_has_ended_takes_no_new_work)
{
	struct gpuwm_block held, owned[2];

	put(writer, 1, 1);
	held = hold_one(reader, 1);
	owned[0] = reserve_one(writer, 2);
	owned[1] = reserve_one(writer, 3);
	control_ended(&shared.control, CONTROL_REMOVED, 0);
	cr_assert(eq(int, wrong_calls(writer, -ESHUTDOWN, 7), 0));
	OK(gpuwm_blocks_release(reader, &held, 1));
	OK(gpuwm_blocks_publish(writer, &owned[0], 1));
	OK(gpuwm_blocks_abandon(writer, &owned[1], 1));
	figures_are(writer, BLOCKS - 2, 0, 2, 0);
}

BlocksTest(there_are_no_streams_on_host)
{
	struct gpuwm_block block = none;

	if (!pools_on_host())
		return;
	FAILS(gpuwm_blocks_publish_in_stream(writer, &block, 1, NULL), -ENOTSUP);
	SAYS("is on host, which has no streams");
	FAILS(gpuwm_blocks_release_in_stream(writer, &block, 1, NULL), -ENOTSUP);
	FAILS(gpuwm_region_reach(writer, "GPU-00000000-0000-0000-0000-000000000000"), -ENOTSUP);
	FAILS(gpuwm_region_reach(writer, NULL), -EINVAL);
	FAILS(gpuwm_region_reach(NULL, "host"), -EINVAL);
}

/* ---- closing, and death ------------------------------------------------------------------------ */

BlocksTest(a_region_is_not_closed_while_blocks_are_owned_or_held)
{
	struct gpuwm_block owned = reserve_one(writer, 1), held[2];

	put(writer, 2, 2);
	held[0] = hold_one(writer, 2);
	held[1] = hold_one(writer, 3);
	FAILS(gpuwm_region_close(writer), -EBUSY);
	SAYS("this process owns 1 of its blocks, and holds 2");
	OK(gpuwm_blocks_abandon(writer, &owned, 1));
	FAILS(gpuwm_region_close(writer), -EBUSY);
	OK(gpuwm_blocks_release(writer, held, 2));
	close_as(&shared, writer);
	figures_are(reader, BLOCKS - 2, 0, 2, 0);
	writer = open_as(&shared, WRITER, true);
}

BlocksTest(a_dead_process_owns_and_holds_nothing)
{
	struct gpuwm_region *other = open_as(&shared, OTHER, true);
	struct gpuwm_block owned = reserve_one(other, 1), held;

	put(other, 2, 2);
	held = hold_one(other, 2);
	has_exited(&shared, OTHER);
	figures_are(reader, BLOCKS - 2, 0, 2, 0);
	cr_assert(eq(sz, find(reader, 2, 2), 2));
	cr_assert(eq(u8, read_block(reader, held.number), put_byte(2)));
	/* It is no dead process after all, and learns it. */
	FAILS(gpuwm_blocks_publish(other, &owned, 1), -ESTALE);
	OK(gpuwm_blocks_release(other, &held, 1));
	close_as(&shared, other);
}

BlocksTest(opening_without_memory_leaves_nothing)
{
	struct blocks *blocks = NULL;
	struct error error;
	unsigned n = 0;
	int r;

	do {
		fail_alloc_arm(++n);
		r = blocks_new(writer, &blocks, &error);
		cr_assert(r == 0 || r == -ENOMEM);
	} while (fail_alloc_disarm());
	cr_assert(n == 5 && r == 0);
	blocks_free(blocks);
	blocks_free(NULL);
}

/* Nothing but an order for a stream needs memory. */
BlocksTest(no_call_needs_memory)
{
	const struct gpuwm_block_key key = key_of(1);
	struct gpuwm_block block;
	size_t count;

	fail_alloc_arm(1);
	OK(gpuwm_blocks_reserve(writer, &key, 1, 0, &block, &count));
	OK(gpuwm_blocks_publish(writer, &block, 1));
	OK(gpuwm_blocks_hold(reader, &key, 1, 0, &block, &count));
	OK(gpuwm_blocks_release(reader, &block, 1));
	OK(gpuwm_blocks_drop(writer, &key, 1, NULL));
	cr_assert(fail_alloc_disarm() == false);
}

BlocksTest(what_a_region_with_blocks_is)
{
	struct gpuwm_region_info info;

	gpuwm_region_info(writer, &info);
	cr_assert(info.kind == GPUWM_REGION_BLOCKS && info.owner == GPUWM_OWNER_UID);
	cr_assert(info.blocks == BLOCKS && info.block_bytes == BLOCK_BYTES && info.chunks == 0);
	cr_assert(info.bytes == BLOCKS * BLOCK_BYTES && info.writes && !info.owns && !info.clear);
}
