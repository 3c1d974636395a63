/* Blocks whose bytes are there, or will not come. */
#include "blocks.h"

#include <errno.h>

/* The process owned the blocks a moment ago. Only a user that breaks the rules can make a step fail now. */
static int end_filling(struct gpuwm_region *region, const struct gpuwm_block *list, size_t count,
		       enum block_step step)
{
	struct blocks *blocks;
	struct error error;
	int r = blocks_of(region, list, count, &blocks, &error);

	if (r < 0)
		return client_fail(&error);
	pthread_mutex_lock(&blocks->lock);
	r = blocks_disown(blocks, list, count, BLOCKS_NOW, &error);
	for (size_t i = 0; r == 0 && i < count; i++) {
		if (list[i].number != GPUWM_BLOCK_NONE)
			blocks_step(blocks, step, list[i]);
	}
	pthread_mutex_unlock(&blocks->lock);
	if (r < 0)
		return client_fail(&error);
	control_ring(blocks->freed);
	return 0;
}

int gpuwm_blocks_publish(struct gpuwm_region *region, const struct gpuwm_block *blocks, size_t count)
{
	return end_filling(region, blocks, count, BLOCK_PUBLISH);
}

int gpuwm_blocks_abandon(struct gpuwm_region *region, const struct gpuwm_block *blocks, size_t count)
{
	return end_filling(region, blocks, count, BLOCK_ABANDON);
}
