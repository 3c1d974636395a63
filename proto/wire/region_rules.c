/* What a region of each kind may and must have: the words of the kinds, and a row for each. */
#include "messages_region.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int check_word(const char *key, const char *value, const char *one, const char *other,
		      struct error *error)
{
	if (strcmp(value, one) == 0 || strcmp(value, other) == 0)
		return 0;
	return error_set(error, -EINVAL, NULL, "\"%s\" is \"%s\" or \"%s\", not \"%s\"", key, one, other,
			 value);
}

static int check_pool(const struct region_create_params *params, struct error *error)
{
	if (params->chunks > 0 && params->chunks <= REGION_CHUNKS_MAX)
		return 0;
	return error_set(error, -EINVAL, NULL, "a pool has 1 to %d chunks, not %llu", REGION_CHUNKS_MAX,
			 (unsigned long long)params->chunks);
}

static int check_queue(const struct region_create_params *params, struct error *error)
{
	if (strcmp(params->writers, REGION_WRITERS_ONE) == 0)
		return error_set(error, -EINVAL, "give it many writers", "a queue has more than one writer");
	if (params->item_bytes == 0 || params->bytes % params->item_bytes != 0 ||
	    params->bytes / params->item_bytes > QUEUE_ITEMS_MAX)
		return error_set(error, -EINVAL, NULL, "the bytes of a queue are 1 to %d times \"item_bytes\"",
				 QUEUE_ITEMS_MAX);
	if (strcmp(params->device, "host") != 0)
		return error_set(error, -EINVAL, "its messages may name chunks on a GPU",
				 "a queue lies on host, not on %s", params->device);
	return 0;
}

/* Every user writes it, and it ends with none of them. */
static int check_shared(const struct region_create_params *params, struct error *error)
{
	if (strcmp(params->writers, REGION_WRITERS_MANY) == 0 && strcmp(params->owner, REGION_OWNER_UID) == 0)
		return 0;
	return error_set(error, -EINVAL, "give it many writers, and its user (uid) as the owner",
			 "a region of kind %s belongs to no process, so none is its only writer", params->kind);
}

static int check_blocks(const struct region_create_params *params, struct error *error)
{
	uint64_t bytes;

	if (params->blocks == 0 || params->blocks > REGION_BLOCKS_MAX || params->block_bytes == 0 ||
	    params->block_bytes % CHUNK_ALIGN != 0)
		return error_set(error, -EINVAL, NULL,
				 "a region has 1 to %d blocks, of a multiple of %d bytes, "
				 "not %llu blocks of %llu bytes",
				 REGION_BLOCKS_MAX, CHUNK_ALIGN, (unsigned long long)params->blocks,
				 (unsigned long long)params->block_bytes);
	if (__builtin_mul_overflow(params->blocks, params->block_bytes, &bytes))
		return error_set(error, -EINVAL, NULL, "no device has %llu blocks of %llu bytes",
				 (unsigned long long)params->blocks, (unsigned long long)params->block_bytes);
	if (bytes != params->bytes)
		return error_set(error, -EINVAL, "\"bytes\" is \"blocks\" times \"block_bytes\"",
				 "%llu blocks of %llu bytes do not have %llu bytes",
				 (unsigned long long)params->blocks, (unsigned long long)params->block_bytes,
				 (unsigned long long)params->bytes);
	return check_shared(params, error);
}

/* What a region may be told besides what all of them are told, a bit for each. */
enum { CHUNKS = 1, ITEM_BYTES = 2, TTL_MS = 4, BLOCKS = 8, BLOCK_BYTES = 16, CLEAR = 32 };

static const struct kind {
	const char *name;
	unsigned has; /* the others are refused */
	int (*check)(const struct region_create_params *params, struct error *error);
} kinds[] = {
	{REGION_KIND_POOL, CHUNKS | TTL_MS, check_pool},
	{REGION_KIND_QUEUE, ITEM_BYTES, check_queue},
	{REGION_KIND_BLOCKS, BLOCKS | BLOCK_BYTES, check_blocks},
	{REGION_KIND_SCRATCH, CLEAR, check_shared},
};
#define KINDS (sizeof(kinds) / sizeof(*kinds))

static const struct kind *find_kind(const char *name, struct error *error)
{
	char all[TEXT_BYTES_MAX] = "";
	size_t used = 0;

	for (size_t i = 0; i < KINDS; i++) {
		const char *between = i == 0 ? "" : i + 1 < KINDS ? ", " : " or ";

		if (strcmp(kinds[i].name, name) == 0)
			return &kinds[i];
		used += (size_t)snprintf(all + used, sizeof(all) - used, "%s\"%s\"", between, kinds[i].name);
	}
	error_set(error, -EINVAL, NULL, "\"kind\" is %s, not \"%s\"", all, name);
	return NULL;
}

static int check_others(const struct region_create_params *params, const struct kind *kind, struct error *error)
{
	const struct {
		const char *key;
		unsigned bit;
		bool is_given;
	} fields[] = {
		{"chunks", CHUNKS, params->chunks > 0},
		{"item_bytes", ITEM_BYTES, params->item_bytes > 0},
		{"ttl_ms", TTL_MS, params->ttl_ms > 0},
		{"blocks", BLOCKS, params->blocks > 0},
		{"block_bytes", BLOCK_BYTES, params->block_bytes > 0},
		{"clear", CLEAR, params->clear},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
		if (fields[i].is_given && !(kind->has & fields[i].bit))
			return error_set(error, -EINVAL, "leave it out", "a region of kind %s has no \"%s\"",
					 kind->name, fields[i].key);
	}
	return 0;
}

int region_create_check(const void *value, struct error *error)
{
	const struct region_create_params *params = value;
	const char *wrong = params->name ? name_wrong(params->name) : NULL;
	const struct kind *kind;
	int r;

	if (wrong)
		return error_set(error, -EINVAL, NULL, "the name %s", wrong);
	kind = find_kind(params->kind, error);
	r = kind ? 0 : -EINVAL;
	if (r == 0)
		r = check_word("writers", params->writers, REGION_WRITERS_ONE, REGION_WRITERS_MANY, error);
	if (r == 0)
		r = check_word("owner", params->owner, REGION_OWNER_PROCESS, REGION_OWNER_UID, error);
	if (r < 0)
		return r;
	/* The region would outlive the only process that may write it. */
	if (strcmp(params->writers, REGION_WRITERS_ONE) == 0 && strcmp(params->owner, REGION_OWNER_UID) == 0)
		return error_set(error, -EINVAL, "give it many writers",
				 "a region with one writer can't outlive that process");
	r = check_others(params, kind, error);
	if (r == 0)
		r = kind->check(params, error);
	if (r == 0 && params->bytes == 0)
		r = error_set(error, -EINVAL, NULL, "a region of 0 bytes");
	return r;
}
