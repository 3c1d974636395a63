/* Reserving blocks. */
#include "blocks.h"

#include "../../base/clock.h"

#include <errno.h>

/* Blocks that were picked may be gone when they are taken. Then they are picked anew, so often. */
#define PASSES 4

/* One call of gpuwm_blocks_reserve. */
struct wish {
	struct blocks *blocks;
	const struct gpuwm_block_key *keys;
	size_t count;
	struct gpuwm_block *ret_blocks;
	uint64_t now; /* the time of the first key's wish */
	struct gpuwm_block spare; /* owned, for the next key that needs one; or GPUWM_BLOCK_NONE */
	size_t reserved; /* keys that got a block */
	bool in_bucket; /* the room that lacks is of a bucket */
};

static uint64_t time_of(const struct wish *wish, size_t key)
{
	return wish->now - key;
}

/* Returns how many keys need a block. Those that have one are wanted now, so that they are not evicted for the others. Until its turn
 * comes, what is returned for a key says in `generation` whether it needs a block. */
static uint32_t wish_look(const struct wish *wish)
{
	const struct control_blocks *shared = &wish->blocks->shared;
	struct block_at block;
	uint32_t missing = 0;

	for (size_t i = 0; i < wish->count; i++) {
		bool there;

		blocks_index_expect(shared, wish->keys, wish->count, i);
		there = blocks_index_find(shared, &wish->keys[i], &block) != BLOCK_FREE;
		wish->ret_blocks[i] = (struct gpuwm_block){GPUWM_BLOCK_NONE, !there};
		if (there)
			blocks_touch(wish->blocks, block.number, time_of(wish, i));
		else if (missing < shared->count)
			missing++;
	}
	return missing;
}

static bool wish_own_one(struct wish *wish, uint32_t missing)
{
	struct blocks *blocks = wish->blocks;

	for (unsigned pass = 0; pass < PASSES; pass++) {
		if (wish->spare.number != GPUWM_BLOCK_NONE || blocks_own_next(blocks, &wish->spare))
			return true;
		if (!blocks_pick(blocks, missing))
			return false;
	}
	return blocks_own_next(blocks, &wish->spare);
}

/* Returns 0, with GPUWM_BLOCK_NONE if the key has a block; or -ENOSPC. A process that dies in between leaves a block that is OWNED, and
 * nothing else: the name of a block has no meaning before a slot names it. */
static int wish_fill_one(struct wish *wish, size_t i, uint32_t missing)
{
	struct blocks *blocks = wish->blocks;
	const bool needs_block = wish->ret_blocks[i].generation;
	int r;

	blocks_index_expect(&blocks->shared, wish->keys, wish->count, i);
	wish->ret_blocks[i] = (struct gpuwm_block){.number = GPUWM_BLOCK_NONE};
	if (!needs_block)
		return 0;
	/* Else a block would make room in vain, and who waits would ring the bell that wakes it. */
	wish->in_bucket = !blocks_index_can_put(&blocks->shared, &wish->keys[i]);
	if (wish->in_bucket || !wish_own_one(wish, missing))
		return -ENOSPC;
	blocks_index_name(&blocks->shared, wish->spare.number, &wish->keys[i]);
	atomic_store_explicit(&blocks->shared.used[wish->spare.number], time_of(wish, i), memory_order_relaxed);
	r = blocks_index_put(&blocks->shared, &wish->keys[i], wish->spare);
	wish->in_bucket = r == -ENOSPC;
	if (r < 0)
		return r == -EEXIST ? 0 : r;
	wish->ret_blocks[i] = wish->spare;
	wish->spare.number = GPUWM_BLOCK_NONE;
	wish->reserved++;
	return 0;
}

/* Returns how many keys are done. */
static size_t wish_fill(struct wish *wish)
{
	struct blocks *blocks = wish->blocks;
	uint32_t missing;
	size_t done = 0;

	pthread_mutex_lock(&blocks->pick_lock);
	wish->spare.number = GPUWM_BLOCK_NONE;
	wish->in_bucket = false;
	missing = wish_look(wish);
	blocks->picks.free_count = blocks->picks.ready_count = 0;
	while (done < wish->count && wish_fill_one(wish, done, missing) == 0)
		done++;
	if (wish->spare.number != GPUWM_BLOCK_NONE) {
		blocks_step(blocks, BLOCK_ABANDON, wish->spare);
		control_ring(blocks->freed);
	}
	/* Now other calls of this process may publish the blocks, so it is told last. */
	pthread_mutex_lock(&blocks->lock);
	for (size_t i = 0; i < done; i++) {
		if (wish->ret_blocks[i].number != GPUWM_BLOCK_NONE)
			blocks_enlist(blocks, wish->ret_blocks[i]);
	}
	pthread_mutex_unlock(&blocks->lock);
	pthread_mutex_unlock(&blocks->pick_lock);
	return done;
}

static int wish_reserve(struct wish *wish, int64_t wait_ms, size_t *ret_done, struct error *error)
{
	const int64_t deadline = clock_deadline(wait_ms);
	struct blocks *blocks = wish->blocks;
	uint32_t seen;
	size_t done;
	int r;

	for (;;) {
		seen = atomic_load(&blocks->freed->rung);
		wish->now = blocks_wish(blocks, wish->count);
		done = wish_fill(wish);
		if (wish->reserved > 0 || done == wish->count)
			break;
		if (!blocks_sleep(blocks, seen, deadline))
			return blocks_are_full(blocks, wish->in_bucket, error);
		r = region_running(blocks->region, error);
		if (r < 0)
			return r;
	}
	*ret_done = done;
	return 0;
}

int gpuwm_blocks_reserve(struct gpuwm_region *region, const struct gpuwm_block_key *keys, size_t count,
			 int64_t wait_ms, struct gpuwm_block *ret_blocks, size_t *ret_done)
{
	struct wish wish = {.keys = keys, .count = count, .ret_blocks = ret_blocks};
	struct error error;
	int r = blocks_running(region, keys, count, &wish.blocks, &error);

	if (r == 0 && !region->writes)
		r = error_set(&error, -EACCES, "open it with GPUWM_REGION_WRITE",
			      "this process can't fill blocks of region %s", region_title(region));
	if (r == 0)
		r = wish_reserve(&wish, wait_ms, ret_done, &error);
	return r < 0 ? client_fail(&error) : 0;
}
