/* One try to allocate the chunks of a request. */
#include "pool.h"

#include "../../base/clock.h"

#include <errno.h>
#include <utlist.h>

/* Finds a place for each chunk, or for none. */
static int find_places(struct pool *pool, const struct pool_request *request)
{
	size_t found = 0;

	if (request->bytes > pool->space.free ||
	    request->count > pool->region->control.count - pool->used_count)
		return -EAGAIN;
	while (found < request->count) {
		struct chunk_use *use = &request->chunks[found]->use;

		if (pool_space_take(&pool->space, use->bytes, &use->offset) < 0)
			break;
		found++;
	}
	if (found == request->count)
		return 0;
	while (found-- > 0)
		pool_space_give(&pool->space, request->chunks[found]->use.offset,
				request->chunks[found]->use.bytes);
	return -EAGAIN;
}

/* The chunk has its place. Takes the entry that was free for longest, unless its last use had the last generation that there is. */
static void use_idle_entry(struct pool *pool, struct gpuwm_chunk *chunk)
{
	struct pool_entry *entry = pool->idle;
	struct chunk_use *use;
	struct control_chunk *to;

	while (entry->use.generation == UINT64_MAX)
		entry = entry->next;
	DL_DELETE(pool->idle, entry);
	DL_APPEND(pool->used, entry);
	pool->used_count++;
	use = &entry->use;
	use->writer = pool->region->slot;
	use->generation++;
	use->offset = chunk->use.offset;
	use->bytes = chunk->use.bytes;
	entry->since_ms = clock_boot_ms();
	/* Nobody may take the chunk by now. proto/control.h says why the word comes first and the generation last. */
	to = chunk_entry(use);
	atomic_store(&to->word, chunk_word_filling(use->generation, use->writer));
	atomic_store(&to->writer, use->writer);
	atomic_store(&to->offset, use->offset);
	atomic_store(&to->bytes, use->bytes);
	atomic_store(&to->since_ms, entry->since_ms);
	atomic_store(&to->generation, use->generation);
	chunk->use = *use;
	chunk->filling = true;
}

static int pool_take(struct pool *pool, const struct pool_request *request)
{
	size_t idle = 0; /* entries that can be used once more */

	for (const struct pool_entry *entry = pool->idle; entry && idle < request->count; entry = entry->next)
		idle += entry->use.generation < UINT64_MAX;
	if (idle < request->count || find_places(pool, request) < 0)
		return -EAGAIN;
	for (size_t i = 0; i < request->count; i++)
		use_idle_entry(pool, request->chunks[i]);
	return 0;
}

int pool_try(struct pool *pool, const struct pool_request *request, struct error *error)
{
	int r = region_running(pool->region, error);

	if (r == 0 && atomic_load(&pool->region->control.head->freed.rung) != pool->heard)
		r = pool_recycle(pool, false, error);
	if (r < 0)
		return r;
	if (pool_take(pool, request) == 0)
		return 0;
	r = pool_recycle(pool, true, error);
	return r < 0 ? r : pool_take(pool, request);
}
