#include "chunk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- handles ------------------------------------------------------------ */

struct gpuwm_chunk *chunk_new(struct gpuwm_region *region)
{
	struct gpuwm_chunk *chunk = calloc(1, sizeof(*chunk));

	if (!chunk)
		return NULL;
	chunk->use.region = region;
	keep_init(&chunk->keep, chunk_finish_last);
	atomic_fetch_add(&region->handles, 1);
	return chunk;
}

void chunk_free(struct gpuwm_chunk *chunk)
{
	struct gpuwm_region *region = chunk->use.region;

	free(chunk);
	/* Now another thread may close the region. */
	region_unuse(region);
}

int chunk_usable(const struct gpuwm_chunk *chunk, bool filling, struct error *error)
{
	int r;

	if (!chunk)
		return error_set(error, -EINVAL, NULL, "no chunk was given");
	r = region_usable(chunk->use.region, GPUWM_REGION_POOL, error);
	if (r == 0 && chunk->filling != filling)
		return error_set(error, -EINVAL, filling ? "finish it" : "offer it, or discard it",
				 filling ? "this process reads the chunk, and does not fill it"
					 : "this process fills the chunk, and does not read it");
	return r;
}

void *gpuwm_chunk_address(const struct gpuwm_chunk *chunk)
{
	return (char *)chunk->use.region->memory.address + chunk->use.offset;
}

uint64_t gpuwm_chunk_bytes(const struct gpuwm_chunk *chunk)
{
	return chunk->use.bytes;
}

struct gpuwm_region *gpuwm_chunk_region(const struct gpuwm_chunk *chunk)
{
	return chunk->use.region;
}

/* ---- words -------------------------------------------------------------- */

struct control_chunk *chunk_entry(const struct chunk_use *use)
{
	return &use->region->control.chunks[use->chunk];
}

_Atomic uint64_t *chunk_finished(const struct chunk_use *use, unsigned slot)
{
	return control_finished(&use->region->control, use->chunk, slot);
}

bool chunk_is_current(const struct chunk_use *use)
{
	return atomic_load(&chunk_entry(use)->generation) == use->generation;
}

/* ---- tokens ------------------------------------------------------------- */

static const char *token_wrong(const struct gpuwm_region *region, const struct gpuwm_token *token)
{
	if (token->chunk >= region->control.count || token->generation == 0)
		return "there is no such chunk";
	if (token->writer >= REGION_USERS_MAX)
		return "there is no such writer";
	if (token->bytes == 0 || token->offset > region->bytes || token->bytes > region->bytes - token->offset)
		return "its bytes are not inside the region";
	return NULL;
}

int chunk_of_token(struct gpuwm_region *region, const struct gpuwm_token *token, struct chunk_use *ret,
		   struct error *error)
{
	const char *wrong;

	if (!token)
		return error_set(error, -EINVAL, NULL, "no token was given");
	if (memcmp(token->region, region->id.bytes, sizeof(token->region)) != 0)
		return error_set(error, -EINVAL, "use the region whose id the token has",
				 "the token is not of region %s", region_title(region));
	wrong = token_wrong(region, token);
	if (wrong)
		return error_set(error, -EINVAL, NULL, "the token of region %s can't be right: %s",
				 region_title(region), wrong);
	*ret = (struct chunk_use){
		.region = region,
		.chunk = token->chunk,
		.writer = token->writer,
		.generation = token->generation,
		.offset = token->offset,
		.bytes = token->bytes,
	};
	return 0;
}
