/* What a caller wants of a pool: chunks that it gets all at once. */
#include "pool.h"

#include <errno.h>

void pool_request_drop(const struct pool_request *request)
{
	for (size_t i = 0; i < request->count; i++)
		chunk_free(request->chunks[i]);
}

static int check_chunk(const struct gpuwm_region *region, uint64_t bytes, struct error *error)
{
	const uint64_t need = pool_space_rounded(bytes);

	if (bytes == 0)
		return error_set(error, -EINVAL, NULL, "a chunk of 0 bytes");
	if (need == 0 || need > region->pool->space.bytes)
		return error_set(error, -ENOSPC, "make a larger region",
				 "a chunk of %llu bytes is larger than region %s, which has %llu",
				 (unsigned long long)bytes, region_title(region),
				 (unsigned long long)region->bytes);
	return 0;
}

/* Sets what the chunks take in all, which is no more than the region has. */
static int request_check(const struct gpuwm_region *region, const uint64_t *bytes, size_t count, uint64_t *ret,
			 struct error *error)
{
	uint64_t sum = 0;
	int r;

	if (count == 0 || !bytes)
		return error_set(error, -EINVAL, NULL, "a request without chunks");
	if (count > region->control.count)
		return error_set(error, -ENOSPC, "ask for fewer at once, or make a region with more chunks",
				 "%zu chunks at once are more than region %s can have: %u", count,
				 region_title(region), region->control.count);
	for (size_t i = 0; i < count; i++) {
		r = check_chunk(region, bytes[i], error);
		if (r < 0)
			return r;
		sum += pool_space_rounded(bytes[i]);
		if (sum > region->pool->space.bytes)
			return error_set(error, -ENOSPC, "ask for less at once, or make a larger region",
					 "%zu chunks at once, each rounded up to a multiple of %u bytes, are "
					 "larger than region %s, which has %llu bytes",
					 count, (unsigned)CHUNK_ALIGN, region_title(region),
					 (unsigned long long)region->bytes);
	}
	*ret = sum;
	return region_running(region, error);
}

int pool_request_begin(struct pool *pool, const uint64_t *bytes, size_t count, struct gpuwm_chunk **chunks,
		       struct pool_request *ret, struct error *error)
{
	struct pool_request request = {.chunks = chunks};
	int r = request_check(pool->region, bytes, count, &request.bytes, error);

	if (r < 0)
		return r;
	for (; request.count < count; request.count++) {
		struct gpuwm_chunk *chunk = chunk_new(pool->region);

		if (!chunk) {
			pool_request_drop(&request);
			return error_set(error, -ENOMEM, NULL, "out of memory for a chunk");
		}
		chunk->use.bytes = bytes[request.count];
		chunks[request.count] = chunk;
	}
	*ret = request;
	return 0;
}
