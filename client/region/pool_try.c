/* One try to allocate the chunks of a request. */
#include "pool.h"

#include "../../base/clock.h"

#include <errno.h>
#include <utlist.h>

/* Returns the entry that was free for longest, or NULL. The last generation there is was the entry's last use. */
static struct pool_entry *idle_entry(const struct pool *pool)
{
	struct pool_entry *entry = pool->idle;

	while (entry && entry->use.generation == UINT64_MAX)
		entry = entry->next;
	return entry;
}

/* Nobody may take the chunk by now. proto/control.h says why the word comes first and the generation last. */
static void begin_use(struct pool_entry *entry)
{
	const struct chunk_use *use = &entry->use;
	struct control_chunk *to = chunk_entry(use);

	atomic_store(&to->word, chunk_word_filling(use->generation, use->writer));
	atomic_store(&to->writer, use->writer);
	atomic_store(&to->offset, use->offset);
	atomic_store(&to->bytes, use->bytes);
	atomic_store(&to->since_ms, entry->since_ms);
	atomic_store(&to->generation, use->generation);
}

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

/* How many entries can be used once more, at most `most`. */
static size_t idle_count(const struct pool *pool, size_t most)
{
	size_t count = 0;

	for (const struct pool_entry *entry = pool->idle; entry && count < most; entry = entry->next)
		count += entry->use.generation < UINT64_MAX;
	return count;
}

/* The chunk has its place. */
static void use_entry(struct pool *pool, struct pool_entry *entry, struct gpuwm_chunk *chunk)
{
	DL_DELETE(pool->idle, entry);
	DL_APPEND(pool->used, entry);
	pool->used_count++;
	entry->use.writer = pool->region->slot;
	entry->use.generation++;
	entry->use.offset = chunk->use.offset;
	entry->use.bytes = chunk->use.bytes;
	entry->since_ms = clock_boot_ms();
	begin_use(entry);
	chunk->use = entry->use;
	chunk->filling = true;
}

static int take(struct pool *pool, const struct pool_request *request)
{
	if (idle_count(pool, request->count) < request->count || find_places(pool, request) < 0)
		return -EAGAIN;
	for (size_t i = 0; i < request->count; i++)
		use_entry(pool, idle_entry(pool), request->chunks[i]);
	return 0;
}

int pool_try(struct pool *pool, const struct pool_request *request, struct error *error)
{
	int r = region_running(pool->region, error);

	if (r == 0 && atomic_load(&pool->region->control.head->freed.rung) != pool->heard)
		r = pool_recycle(pool, false, error);
	if (r < 0)
		return r;
	if (take(pool, request) == 0)
		return 0;
	r = pool_recycle(pool, true, error);
	return r < 0 ? r : take(pool, request);
}
