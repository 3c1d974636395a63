/* What of a pool is in use, from the control memory. */
#include "pool.h"

#include <errno.h>
#include <stdlib.h>

static int by_offset(const void *a, const void *b)
{
	const struct pool_piece *first = a, *second = b;

	return first->offset < second->offset ? -1 : first->offset > second->offset;
}

/* It tells of a moment: nothing is locked. */
static uint32_t list_used(const struct gpuwm_region *region, struct pool_piece *pieces)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < region->control.count; i++) {
		const struct control_chunk *entry = &region->control.chunks[i];
		const uint64_t offset = atomic_load(&entry->offset), bytes = atomic_load(&entry->bytes);

		if (!control_chunk_is_free(&region->control, i) && offset <= region->bytes &&
		    bytes <= region->bytes - offset)
			pieces[count++] = (struct pool_piece){offset, pool_space_rounded(bytes)};
	}
	qsort(pieces, count, sizeof(*pieces), by_offset);
	return count;
}

static void count_pieces(const struct pool_piece *pieces, uint32_t count, uint64_t bytes,
			 struct gpuwm_pool_figures *ret)
{
	uint64_t end = 0;

	*ret = (struct gpuwm_pool_figures){.chunks = count};
	for (uint32_t i = 0; i <= count; i++) {
		const uint64_t next = i < count ? pieces[i].offset : bytes;
		const uint64_t gap = next > end ? next - end : 0;

		ret->free += gap;
		if (gap > ret->largest_free)
			ret->largest_free = gap;
		if (i < count && pieces[i].offset + pieces[i].bytes > end)
			end = pieces[i].offset + pieces[i].bytes;
	}
	ret->used = bytes > ret->free ? bytes - ret->free : 0;
}

static uint32_t waiting(const struct gpuwm_region *region)
{
	uint32_t count = 0;

	if (region->pool) {
		pthread_mutex_lock(&region->pool->lock);
		count = region->pool->waiting;
		pthread_mutex_unlock(&region->pool->lock);
	}
	return count;
}

int gpuwm_pool_figures(const struct gpuwm_region *region, struct gpuwm_pool_figures *ret_figures)
{
	struct pool_piece *pieces;
	struct error error;
	int r = region_usable(region, GPUWM_REGION_POOL, &error);

	if (r < 0)
		return client_fail(&error);
	pieces = calloc((size_t)region->control.count + 1, sizeof(*pieces));
	if (!pieces) {
		error_set(&error, -ENOMEM, NULL, "out of memory for the figures of a pool");
		return client_fail(&error);
	}
	count_pieces(pieces, list_used(region, pieces), region->bytes, ret_figures);
	ret_figures->waiting = waiting(region);
	free(pieces);
	return 0;
}
