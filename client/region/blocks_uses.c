/* What this process owns and holds. */
#include "blocks.h"

#include <errno.h>

struct block_use *blocks_use_of(const struct blocks *blocks, struct gpuwm_block block)
{
	struct block_use *use;

	if (block.number >= blocks->shared.count)
		return NULL;
	use = &blocks->uses[block.number];
	return use->generation == block.generation ? use : NULL;
}

/* ---- owning -------------------------------------------------------------------- */

/* A user who breaks the rules may have freed a block that this process owned or held before. */
static void block_use_forget(struct blocks *blocks, uint32_t number)
{
	struct block_use *use = &blocks->uses[number];

	blocks->owned -= use->owning == BLOCK_TO_FILL;
	blocks->held -= use->holds > 0;
	*use = (struct block_use){.owning = BLOCK_NOT_OWNED};
}

void blocks_enlist(struct blocks *blocks, struct gpuwm_block block)
{
	block_use_forget(blocks, block.number);
	blocks->uses[block.number] =
		(struct block_use){.generation = block.generation, .owning = BLOCK_TO_FILL};
	blocks->owned++;
}

static bool owns(struct blocks *blocks, struct gpuwm_block block)
{
	struct block_use *use = blocks_use_of(blocks, block);
	uint64_t word, unused;

	if (!use || use->owning != BLOCK_TO_FILL)
		return false;
	word = atomic_load(&blocks->shared.words[block.number]);
	if (block_word_publish(word, blocks->slot, block.generation, &unused) == 0)
		return true;
	/* Somebody who breaks the rules has changed the word of a block that this process owned. */
	use->owning = BLOCK_NOT_OWNED;
	blocks->owned--;
	return false;
}

int blocks_disown(struct blocks *blocks, const struct gpuwm_block *list, size_t count, enum blocks_end end,
		  struct error *error)
{
	for (size_t i = 0; i < count; i++) {
		if (list[i].number == GPUWM_BLOCK_NONE)
			continue;
		if (!owns(blocks, list[i])) {
			blocks_disown_undo(blocks, list, i);
			return error_set(error, -ESTALE, "publish or abandon a block once, as it was reserved",
					 "this process does not own use %u of block %u of region %s",
					 list[i].generation, list[i].number, region_title(blocks->region));
		}
		blocks->uses[list[i].number].owning =
			end == BLOCKS_BY_STREAM ? BLOCK_PUBLISHING : BLOCK_NOT_OWNED;
		blocks->owned--;
	}
	return 0;
}

void blocks_disown_undo(struct blocks *blocks, const struct gpuwm_block *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct block_use *use = blocks_use_of(blocks, list[i]);

		if (!use)
			continue;
		blocks->owned += use->owning != BLOCK_TO_FILL;
		use->owning = BLOCK_TO_FILL;
	}
}

/* The process owned the blocks a moment ago. Only a user that breaks the rules can make a step fail now. */
static int blocks_end_filling(struct gpuwm_region *region, const struct gpuwm_block *list, size_t count,
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
	return blocks_end_filling(region, blocks, count, BLOCK_PUBLISH);
}

int gpuwm_blocks_abandon(struct gpuwm_region *region, const struct gpuwm_block *blocks, size_t count)
{
	return blocks_end_filling(region, blocks, count, BLOCK_ABANDON);
}

/* ---- holding ------------------------------------------------------------------- */

int blocks_hold_one(struct blocks *blocks, struct gpuwm_block block)
{
	struct block_use *use = &blocks->uses[block.number];
	int r;

	if (use->holds + use->leaving > 0 && use->generation != block.generation)
		return -ESTALE;
	if (use->holds + use->leaving == 0) {
		r = blocks_step(blocks, BLOCK_HOLD, block);
		/* Nobody else sets this process's bit, unless a user breaks the rules. It keeps the block here as well. */
		if (r < 0 && r != -EALREADY)
			return r;
		if (use->generation != block.generation)
			block_use_forget(blocks, block.number);
		use->generation = block.generation;
	}
	blocks->held += use->holds++ == 0;
	return 0;
}

int blocks_unhold(struct blocks *blocks, const struct gpuwm_block *list, size_t count, enum blocks_end end,
		  struct error *error)
{
	for (size_t i = 0; i < count; i++) {
		struct block_use *use;

		if (list[i].number == GPUWM_BLOCK_NONE)
			continue;
		use = blocks_use_of(blocks, list[i]);
		if (!use || use->holds == 0) {
			blocks_unhold_undo(blocks, list, i, end);
			return error_set(
				error, -EALREADY, "release a block once for each time that it was held",
				"this process does not hold use %u of block %u of region %s, or not so often",
				list[i].generation, list[i].number, region_title(blocks->region));
		}
		use->leaving += end == BLOCKS_BY_STREAM;
		blocks->held -= --use->holds == 0;
	}
	return 0;
}

void blocks_unhold_undo(struct blocks *blocks, const struct gpuwm_block *list, size_t count,
			enum blocks_end end)
{
	for (size_t i = 0; i < count; i++) {
		struct block_use *use = blocks_use_of(blocks, list[i]);

		if (!use)
			continue;
		use->leaving -= end == BLOCKS_BY_STREAM && use->leaving > 0;
		blocks->held += use->holds++ == 0;
	}
}

void blocks_release_words(struct blocks *blocks, const struct gpuwm_block *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct block_use *use = blocks_use_of(blocks, list[i]);

		/* A block that the list names twice is released by the first of the two. */
		if (use && use->holds + use->leaving == 0)
			blocks_step(blocks, BLOCK_RELEASE, list[i]);
	}
	control_ring(blocks->freed);
}

int blocks_let_go(struct blocks *blocks, const struct gpuwm_block *list, size_t count, struct error *error)
{
	int r;

	pthread_mutex_lock(&blocks->lock);
	r = blocks_unhold(blocks, list, count, BLOCKS_NOW, error);
	if (r == 0)
		blocks_release_words(blocks, list, count);
	pthread_mutex_unlock(&blocks->lock);
	return r;
}

int gpuwm_blocks_release(struct gpuwm_region *region, const struct gpuwm_block *list, size_t count)
{
	struct blocks *blocks;
	struct error error;
	int r = blocks_of(region, list, count, &blocks, &error);

	if (r == 0)
		r = blocks_let_go(blocks, list, count, &error);
	return r < 0 ? client_fail(&error) : 0;
}
