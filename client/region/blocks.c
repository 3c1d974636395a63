#include "blocks.h"

#include "../../base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

/* ---- their life ---------------------------------------------------------------- */

static void blocks_clear(struct blocks *blocks)
{
	free(blocks->uses);
	free(blocks->picks.frees);
	free(blocks->picks.readies);
	free(blocks);
}

static void dispose(struct blocks *blocks)
{
	pthread_mutex_destroy(&blocks->lock);
	pthread_mutex_destroy(&blocks->pick_lock);
	blocks_clear(blocks);
}

/* The kernel gives pages of the arrays when they are touched. */
static struct blocks *allocate(uint32_t count)
{
	struct blocks *blocks = calloc(1, sizeof(*blocks));

	if (!blocks)
		return NULL;
	blocks->uses = calloc(count, sizeof(*blocks->uses));
	blocks->picks.frees = calloc(count, sizeof(*blocks->picks.frees));
	blocks->picks.readies = calloc(count, sizeof(*blocks->picks.readies));
	if (blocks->uses && blocks->picks.frees && blocks->picks.readies)
		return blocks;
	blocks_clear(blocks);
	return NULL;
}

int blocks_new(struct gpuwm_region *region, struct blocks **ret, struct error *error)
{
	const uint32_t count = region->control.blocks.count;
	struct blocks *blocks = allocate(count);

	if (!blocks)
		return error_set(error, -ENOMEM, NULL, "out of memory for the blocks of region %s",
				 region_title(region));
	blocks->region = region;
	blocks->shared = region->control.blocks;
	blocks->clock = &region->control.head->clock;
	blocks->freed = &region->control.head->freed;
	blocks->slot = region->slot;
	/* Processes that begin at different places seldom want the same free block. */
	blocks->picks.cursor = (uint32_t)((uint64_t)count * region->slot / REGION_USERS_MAX);
	pthread_mutex_init(&blocks->lock, NULL);
	pthread_mutex_init(&blocks->pick_lock, NULL);
	*ret = blocks;
	return 0;
}

/* Functions of a broken context have them. They stay until the driver calls the last one, which is never, as far as is known. */
static struct blocks *uncalled;
static pthread_mutex_t uncalled_lock = PTHREAD_MUTEX_INITIALIZER;

void blocks_free_uncalled(struct blocks *blocks)
{
	pthread_mutex_lock(&uncalled_lock);
	DL_DELETE(uncalled, blocks);
	pthread_mutex_unlock(&uncalled_lock);
	dispose(blocks);
}

void blocks_free(struct blocks *blocks)
{
	uint32_t functions;

	if (!blocks)
		return;
	pthread_mutex_lock(&uncalled_lock);
	pthread_mutex_lock(&blocks->lock);
	blocks->region = NULL;
	functions = blocks->functions;
	if (functions > 0)
		DL_APPEND(uncalled, blocks);
	pthread_mutex_unlock(&blocks->lock);
	pthread_mutex_unlock(&uncalled_lock);
	if (functions == 0)
		dispose(blocks);
}

int blocks_are_let_go(struct blocks *blocks, struct error *error)
{
	uint32_t owned, held;

	pthread_mutex_lock(&blocks->lock);
	owned = blocks->owned;
	held = blocks->held;
	pthread_mutex_unlock(&blocks->lock);
	if (owned == 0 && held == 0)
		return 0;
	return error_set(error, -EBUSY, "publish, abandon or release every block",
			 "region %s can't be closed: this process owns %u of its blocks, and holds %u",
			 region_title(blocks->region), owned, held);
}

int blocks_of(const struct gpuwm_region *region, const void *list, size_t count, struct blocks **ret,
	      struct error *error)
{
	int r = region_usable(region, GPUWM_REGION_BLOCKS, error);

	if (r == 0 && !list && count > 0)
		r = error_set(error, -EINVAL, NULL, "the list of %zu keys or blocks was not given", count);
	if (r == 0)
		*ret = region->blocks;
	return r;
}

int blocks_running(const struct gpuwm_region *region, const void *list, size_t count, struct blocks **ret,
		   struct error *error)
{
	int r = blocks_of(region, list, count, ret, error);

	return r < 0 ? r : region_running(region, error);
}

/* ---- words ---------------------------------------------------------------------- */

static int step_from(const struct blocks *blocks, enum block_step step, uint32_t generation, uint64_t word,
		     uint64_t *ret)
{
	switch (step) {
	case BLOCK_PUBLISH:
		return block_word_publish(word, blocks->slot, generation, ret);
	case BLOCK_ABANDON:
		return block_word_abandon(word, blocks->slot, generation, ret);
	case BLOCK_HOLD:
		return block_word_hold(word, blocks->slot, generation, ret);
	case BLOCK_RELEASE:
		return block_word_release(word, blocks->slot, generation, ret);
	default:
		return block_word_drop(word, generation, ret);
	}
}

int blocks_step(const struct blocks *blocks, enum block_step step, struct gpuwm_block block)
{
	_Atomic uint64_t *word = &blocks->shared.words[block.number];
	uint64_t now = atomic_load(word), next;
	int r;

	for (unsigned tries = 0; tries < BLOCK_TRIES; tries++) {
		r = step_from(blocks, step, block.generation, now, &next);
		if (r < 0 || atomic_compare_exchange_strong(word, &now, next))
			return r;
	}
	return -EUCLEAN;
}

/* Others may touch it in between. Then the one or the other wish counts. */
void blocks_touch(const struct blocks *blocks, uint32_t number, uint64_t now)
{
	_Atomic uint64_t *used = &blocks->shared.used[number];

	if (atomic_load_explicit(used, memory_order_relaxed) < now)
		atomic_store_explicit(used, now, memory_order_relaxed);
}

uint64_t blocks_wish(const struct blocks *blocks, size_t count)
{
	return atomic_fetch_add(blocks->clock, count) + count;
}

bool blocks_sleep(const struct blocks *blocks, uint32_t seen, int64_t deadline)
{
	const int left = clock_left(deadline);

	if (left == 0)
		return false;
	control_sleep(blocks->freed, seen, left < 0 || left > BLOCK_LOOK_AGAIN_MS ? BLOCK_LOOK_AGAIN_MS : left);
	return true;
}
