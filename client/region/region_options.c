#include "queue.h"
#include "region.h"

#include <errno.h>
#include <string.h>

#define CHUNKS_USUAL 1024

/* What a request has no place for: it says other numbers instead. proto/wire/region_rules.c checks all else. */
static int check_sizes(const struct gpuwm_region_options *options, struct error *error)
{
	const bool queue = options->kind == GPUWM_REGION_QUEUE, blocks = options->kind == GPUWM_REGION_BLOCKS;
	const char *name = NULL;

	if ((queue || blocks) && options->bytes > 0)
		name = "bytes";
	if (!queue && options->items > 0)
		name = "items";
	if (!queue && options->item_bytes > 0)
		name = "item_bytes";
	if (name)
		return error_set(error, -EINVAL, "leave it 0", "the option %s is not for a region of kind %s",
				 name, region_kind_name(options->kind));
	if (!queue || (options->items > 0 && options->items <= QUEUE_ITEMS_MAX && options->item_bytes > 0 &&
		       options->item_bytes <= QUEUE_ITEM_BYTES_MAX))
		return 0;
	return error_set(error, -EINVAL, "1 to 65,536 items, of 1 to 1,048,576 bytes",
			 "a queue can't have %u items of %u bytes", options->items, options->item_bytes);
}

int region_options_check(const struct gpuwm_region_options *options, struct error *error)
{
	struct region_create_params params;
	int r;

	if ((unsigned)options->kind > GPUWM_REGION_SCRATCH || (unsigned)options->writers > GPUWM_WRITERS_MANY ||
	    (unsigned)options->owner > GPUWM_OWNER_UID)
		return error_set(error, -EINVAL, NULL,
				 "there is no region of kind %d with the writers %d and the owner %d",
				 (int)options->kind, (int)options->writers, (int)options->owner);
	r = check_sizes(options, error);
	if (r < 0)
		return r;
	params = region_options_params(options);
	return region_create_check(&params, error);
}

/* What its users get. The memory of a queue has cells, which have a head each. */
static uint64_t region_bytes_of(const struct gpuwm_region_options *options, uint64_t cell)
{
	if (options->kind == GPUWM_REGION_QUEUE)
		return cell * options->items;
	if (options->kind == GPUWM_REGION_BLOCKS)
		return options->blocks * options->block_bytes;
	return options->bytes;
}

struct region_create_params region_options_params(const struct gpuwm_region_options *options)
{
	const bool queue = options->kind == GPUWM_REGION_QUEUE, pool = options->kind == GPUWM_REGION_POOL;
	const uint64_t cell = queue ? queue_cell_bytes(options->item_bytes) : 0;

	return (struct region_create_params){
		.name = options->name,
		.device = options->device ? options->device : "host",
		.kind = region_kind_name(options->kind),
		.writers = options->writers == GPUWM_WRITERS_MANY ? REGION_WRITERS_MANY : REGION_WRITERS_ONE,
		.owner = options->owner == GPUWM_OWNER_UID ? REGION_OWNER_UID : REGION_OWNER_PROCESS,
		.bytes = region_bytes_of(options, cell),
		.chunks = pool && options->chunks == 0 ? CHUNKS_USUAL : options->chunks,
		.item_bytes = cell,
		.ttl_ms = options->ttl_ms,
		.blocks = options->blocks,
		.block_bytes = options->block_bytes,
		.clear = options->clear,
	};
}
