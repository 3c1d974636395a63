#include "queue.h"
#include "region.h"

#include <errno.h>
#include <string.h>

#define CHUNKS_USUAL 1024

/* What only some kinds have, a bit for each. */
enum {
	BYTES = 1,
	CHUNKS = 2,
	TTL_MS = 4,
	ITEMS = 8,
	ITEM_BYTES = 16,
	BLOCKS = 32,
	BLOCK_BYTES = 64,
	CLEAR = 128
};

/* ---- checks of one kind ---- */

static int check_bytes(const struct gpuwm_region_options *options, struct error *error)
{
	if (options->bytes > 0 && options->bytes <= INT64_MAX)
		return 0;
	return error_set(error, -EINVAL, NULL, "a region of kind %s can't have %llu bytes",
			 region_kind_name(options->kind), (unsigned long long)options->bytes);
}

static int check_pool(const struct gpuwm_region_options *options, struct error *error)
{
	if (options->chunks > REGION_CHUNKS_MAX)
		return error_set(error, -EINVAL, "at most 4,096", "a pool can't have %u chunks at once",
				 options->chunks);
	return check_bytes(options, error);
}

static int check_queue(const struct gpuwm_region_options *options, struct error *error)
{
	if (options->items > 0 && options->items <= QUEUE_ITEMS_MAX && options->item_bytes > 0 &&
	    options->item_bytes <= QUEUE_ITEM_BYTES_MAX)
		return 0;
	return error_set(error, -EINVAL, "1 to 65,536 items, of 1 to 1,048,576 bytes",
			 "a queue can't have %u items of %u bytes", options->items, options->item_bytes);
}

static int check_blocks(const struct gpuwm_region_options *options, struct error *error)
{
	const uint64_t most = (uint64_t)INT64_MAX / REGION_BLOCKS_MAX;

	if (options->blocks > 0 && options->blocks <= REGION_BLOCKS_MAX && options->block_bytes > 0 &&
	    options->block_bytes % CHUNK_ALIGN == 0 && options->block_bytes <= most)
		return 0;
	return error_set(error, -EINVAL, "1 to 262,144 blocks, of a multiple of 256 bytes",
			 "a region can't have %u blocks of %llu bytes", options->blocks,
			 (unsigned long long)options->block_bytes);
}

/* ---- the table ---- */

static const struct kind {
	unsigned has; /* the others are refused */
	int (*check)(const struct gpuwm_region_options *options, struct error *error);
} kinds[] = {
	[GPUWM_REGION_POOL] = {BYTES | CHUNKS | TTL_MS, check_pool},
	[GPUWM_REGION_QUEUE] = {ITEMS | ITEM_BYTES, check_queue},
	[GPUWM_REGION_BLOCKS] = {BLOCKS | BLOCK_BYTES, check_blocks},
	[GPUWM_REGION_SCRATCH] = {BYTES | CLEAR, check_bytes},
};

#define KINDS (sizeof(kinds) / sizeof(*kinds))

/* Options of other kinds. */
static int check_others(const struct gpuwm_region_options *options, struct error *error)
{
	const struct {
		const char *name;
		unsigned bit;
		bool is_set;
	} fields[] = {
		{"bytes", BYTES, options->bytes > 0},
		{"chunks", CHUNKS, options->chunks > 0},
		{"ttl_ms", TTL_MS, options->ttl_ms > 0},
		{"items", ITEMS, options->items > 0},
		{"item_bytes", ITEM_BYTES, options->item_bytes > 0},
		{"blocks", BLOCKS, options->blocks > 0},
		{"block_bytes", BLOCK_BYTES, options->block_bytes > 0},
		{"clear", CLEAR, options->clear},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
		if (fields[i].is_set && !(kinds[options->kind].has & fields[i].bit))
			return error_set(error, -EINVAL, "leave it 0",
					 "the option %s is not for a region of kind %s", fields[i].name,
					 region_kind_name(options->kind));
	}
	return 0;
}

int region_options_check(const struct gpuwm_region_options *options, struct error *error)
{
	struct region_create_params params;
	int r;

	if ((unsigned)options->kind >= KINDS || (unsigned)options->writers > GPUWM_WRITERS_MANY ||
	    (unsigned)options->owner > GPUWM_OWNER_UID)
		return error_set(error, -EINVAL, NULL,
				 "there is no region of kind %d with the writers %d and the owner %d",
				 (int)options->kind, (int)options->writers, (int)options->owner);
	r = check_others(options, error);
	if (r == 0)
		r = kinds[options->kind].check(options, error);
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
