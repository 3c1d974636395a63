#include "region.h"

#include "../../proto/wire/messages_region.h"

#include <string.h>

/* ---- sizes ---- */

static bool pool_fits(const struct region_wish *wish)
{
	return wish->item_bytes == 0 && wish->shape.blocks == 0 && wish->block_bytes == 0 && !wish->clear;
}

static bool queue_fits(const struct region_wish *wish)
{
	return wish->item_bytes > 0 && wish->shape.chunks == 0 && wish->shape.blocks == 0 &&
	       wish->block_bytes == 0 && !wish->clear;
}

static bool blocks_fit(const struct region_wish *wish)
{
	uint64_t bytes;

	return wish->shape.blocks > 0 && wish->item_bytes == 0 && wish->shape.chunks == 0 && !wish->clear &&
	       !__builtin_mul_overflow(wish->shape.blocks, wish->block_bytes, &bytes) && bytes == wish->bytes;
}

static bool scratch_fits(const struct region_wish *wish)
{
	return wish->item_bytes == 0 && wish->shape.chunks == 0 && wish->shape.blocks == 0 &&
	       wish->block_bytes == 0;
}

/* ---- damage ---- */

static const char *no_damage(const struct region *region)
{
	(void)region;
	return NULL;
}

/* Both numbers grow while gpuwmd reads them: what was the first message before is not behind the end, and the end is not further than all
 * cells from what is the first one afterwards. */
static const char *queue_damage(const struct region *region)
{
	const struct control_head *head = region->control.head;
	const uint64_t before = atomic_load(&head->first), end = atomic_load(&head->end),
		       after = atomic_load(&head->first);

	if (before <= end && (after >= end || end - after <= region->is.bytes / region->is.item_bytes))
		return NULL;
	return "its first message and its last one do not go together";
}

/* ---- the table ---- */

const struct region_kind region_kind_pool = {
	.name = REGION_KIND_POOL,
	.has_owner = true,
	.fits = pool_fits,
	.damage = no_damage,
	.count = region_count_chunks,
	.look = region_look_at_chunks,
};

const struct region_kind region_kind_queue = {
	.name = REGION_KIND_QUEUE,
	.has_exact_bytes = true,
	.fits = queue_fits,
	.damage = queue_damage,
	.count = region_count_messages,
	.look = region_count_messages,
};

/* control_damage looks at the words of blocks. */
const struct region_kind region_kind_blocks = {
	.name = REGION_KIND_BLOCKS,
	.has_exact_bytes = true,
	.fits = blocks_fit,
	.damage = no_damage,
	.count = region_count_blocks,
	.look = region_look_at_blocks,
};

const struct region_kind region_kind_scratch = {
	.name = REGION_KIND_SCRATCH,
	.fits = scratch_fits,
	.damage = no_damage,
	.count = region_count_scratch,
	.look = region_look_at_scratch,
};

const struct region_kind *region_kind_find(const char *name)
{
	static const struct region_kind *const kinds[] = {&region_kind_pool, &region_kind_queue,
							  &region_kind_blocks, &region_kind_scratch};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (strcmp(kinds[i]->name, name) == 0)
			return kinds[i];
	}
	return NULL;
}
