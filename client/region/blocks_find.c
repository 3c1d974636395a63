/* Looking keys up, and what is known of a block. */
#include "blocks.h"

#include <errno.h>

int gpuwm_blocks_find(struct gpuwm_region *region, const struct gpuwm_block_key *keys, size_t count,
		      size_t *ret_found)
{
	struct blocks *blocks;
	struct block_at block;
	struct error error;
	size_t found = 0;
	uint64_t now;
	int r = blocks_running(region, keys, count, &blocks, &error);

	if (r < 0)
		return client_fail(&error);
	now = blocks_wish(blocks, count);
	while (found < count && blocks_index_find(&blocks->shared, &keys[found], &block) == BLOCK_READY)
		blocks_touch(blocks, block.number, now - found++);
	*ret_found = found;
	return 0;
}

/* A key may have two blocks, if two processes have reserved it at once. */
static size_t drop_key(const struct blocks *blocks, const struct gpuwm_block_key *key)
{
	struct block_at at;
	size_t dropped = 0;
	unsigned slot = 0;

	while (blocks_index_find_next(&blocks->shared, key, &slot, &at) != BLOCK_FREE) {
		const struct gpuwm_block block = {at.number, block_word_generation(at.word)};

		dropped += blocks_step(blocks, BLOCK_DROP, block) == 0;
	}
	return dropped;
}

int gpuwm_blocks_drop(struct gpuwm_region *region, const struct gpuwm_block_key *keys, size_t count,
		      size_t *ret_dropped)
{
	struct blocks *blocks;
	struct error error;
	size_t dropped = 0;
	int r = blocks_running(region, keys, count, &blocks, &error);

	if (r == 0 && !region->writes)
		r = error_set(&error, -EACCES, "open it with GPUWM_REGION_WRITE",
			      "this process may not write region %s, and so can't drop its blocks",
			      region_title(region));
	if (r < 0)
		return client_fail(&error);
	for (size_t i = 0; i < count; i++)
		dropped += drop_key(blocks, &keys[i]);
	if (dropped > 0)
		control_ring(blocks->freed);
	if (ret_dropped)
		*ret_dropped = dropped;
	return 0;
}

void *gpuwm_block_address(const struct gpuwm_region *region, uint32_t number)
{
	if (!region || !region->memory.address || number >= region->control.blocks.count)
		return NULL;
	return (char *)region->memory.address + number * region->block_bytes;
}

int gpuwm_block_key_of(const struct gpuwm_region *region, const struct gpuwm_block *block,
		       struct gpuwm_block_key *ret_key)
{
	const struct block_use *use;
	struct blocks *blocks;
	struct error error;
	bool mine;
	int r = blocks_of(region, block, 1, &blocks, &error);

	if (r < 0)
		return client_fail(&error);
	pthread_mutex_lock(&blocks->lock);
	use = blocks_use_of(blocks, *block);
	mine = use && (use->owning != BLOCK_NOT_OWNED || use->holds + use->leaving > 0);
	pthread_mutex_unlock(&blocks->lock);
	if (!mine) {
		error_set(&error, -EALREADY, "hold it first",
			  "this process neither owns nor holds use %u of block %u of region %s",
			  block->generation, block->number, region_title(region));
		return client_fail(&error);
	}
	*ret_key = blocks_index_name_of(&blocks->shared, block->number);
	return 0;
}
