#include "pool.h"

#include "../../base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

int pool_of(const struct gpuwm_region *region, struct pool **ret, struct error *error)
{
	int r = region_usable(region, GPUWM_REGION_POOL, error);

	if (r < 0)
		return r;
	if (!region->pool)
		return error_set(error, -EPERM, "ask the owner's process for chunks",
				 "this process does not own region %s", region_title(region));
	*ret = region->pool;
	return 0;
}

/* ---- the chunks that a former owner has left ----------------------------- */

/* What the control memory says of the entry's last use. */
static struct chunk_use use_told(struct gpuwm_region *region, uint32_t chunk)
{
	const struct control_chunk *entry = &region->control.chunks[chunk];

	return (struct chunk_use){
		.region = region,
		.chunk = chunk,
		.writer = atomic_load(&entry->writer),
		.generation = atomic_load(&entry->generation),
		.offset = atomic_load(&entry->offset),
		.bytes = atomic_load(&entry->bytes),
	};
}

static int pool_adopt(struct pool *pool, struct pool_entry *entry, struct error *error)
{
	const struct chunk_use *use = &entry->use;

	/* Its former owner has exited, or has waited for its streams: nobody writes into it. */
	if (control_chunk_is_free(&use->region->control, use->chunk)) {
		DL_APPEND(pool->idle, entry);
		return 0;
	}
	if (pool_space_claim(&pool->space, use->offset, use->bytes) < 0)
		return error_set(
			error, -EUCLEAN, "remove the region, and make another one",
			"chunk %u of region %s, at %llu with %llu bytes, overlaps another one or is not "
			"inside the region",
			use->chunk, region_title(use->region), (unsigned long long)use->offset,
			(unsigned long long)use->bytes);
	entry->offered = true;
	entry->since_ms = atomic_load(&chunk_entry(use)->since_ms);
	DL_APPEND(pool->used, entry);
	pool->used_count++;
	return 0;
}

static int by_age(const struct pool_entry *a, const struct pool_entry *b)
{
	return a->since_ms < b->since_ms ? -1 : a->since_ms > b->since_ms;
}

/* ---- its life ------------------------------------------------------------ */

int pool_new(struct gpuwm_region *region, struct pool **ret, struct error *error)
{
	struct pool *pool = calloc(1, sizeof(*pool));
	int r = pool ? pool_space_init(&pool->space, region->bytes, region->control.count) : -ENOMEM;

	if (r == 0)
		pool->entries = calloc(region->control.count, sizeof(*pool->entries));
	if (!pool || !pool->entries) {
		if (pool)
			pool_space_clear(&pool->space);
		free(pool);
		return error_set(error, -ENOMEM, NULL, "out of memory for the pool of region %s",
				 region_title(region));
	}
	pool->region = region;
	pthread_mutex_init(&pool->lock, NULL);
	clock_condition(&pool->turn);
	for (uint32_t i = 0; r == 0 && i < region->control.count; i++) {
		pool->entries[i].use = use_told(region, i);
		r = pool_adopt(pool, &pool->entries[i], error);
	}
	DL_SORT(pool->used, by_age);
	if (r < 0)
		pool_free(pool);
	else
		*ret = pool;
	return r;
}

void pool_free(struct pool *pool)
{
	if (!pool)
		return;
	if (pool->has_thread) {
		pthread_mutex_lock(&pool->lock);
		pool->stopping = true;
		pthread_cond_broadcast(&pool->turn);
		pthread_mutex_unlock(&pool->lock);
		pthread_join(pool->thread, NULL);
	}
	pool_space_clear(&pool->space);
	free(pool->entries);
	pthread_cond_destroy(&pool->turn);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}
