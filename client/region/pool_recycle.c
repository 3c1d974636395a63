/* Which chunks are free again. */
#include "pool.h"

#include "../../base/clock.h"

#include <errno.h>
#include <utlist.h>

void pool_release(struct pool *pool, struct pool_entry *entry)
{
	pool_space_give(&pool->space, entry->use.offset, entry->use.bytes);
	DL_DELETE(pool->used, entry);
	DL_APPEND(pool->idle, entry);
	pool->used_count--;
	entry->offered = entry->withdrawn = false;
}

int pool_recycle(struct pool *pool, bool expired, struct error *error)
{
	const struct control *control = &pool->region->control;
	const uint64_t now_ms = clock_boot_ms(), ttl = pool->region->ttl_ms;
	struct pool_entry *next;

	pool->heard = atomic_load(&control->head->freed.rung);
	for (struct pool_entry *entry = pool->used; entry; entry = next) {
		const struct chunk_use *use = &entry->use;

		next = entry->next;
		if (!entry->offered)
			continue;
		if (!chunk_is_current(use) ||
		    !chunk_word_is_of(atomic_load(&chunk_entry(use)->word), use->generation))
			return error_set(error, -EUCLEAN, "remove the region, and make another one",
					 "somebody has written over the entry of chunk %u of region %s",
					 use->chunk, region_title(pool->region));
		if (expired && ttl > 0 && now_ms > entry->since_ms && now_ms - entry->since_ms >= ttl &&
		    !entry->withdrawn) {
			entry->withdrawn = true;
			control_withdraw(control, use->chunk);
		}
		if (control_chunk_is_free(control, use->chunk))
			pool_release(pool, entry);
	}
	return 0;
}

int64_t pool_next_expiry(const struct pool *pool)
{
	const uint64_t now_ms = clock_boot_ms(), ttl = pool->region->ttl_ms;
	int64_t first = -1;

	if (ttl == 0)
		return -1;
	for (const struct pool_entry *entry = pool->used; entry; entry = entry->next) {
		const uint64_t age = now_ms > entry->since_ms ? now_ms - entry->since_ms : 0;
		const int64_t at = clock_deadline(ttl > age ? (int64_t)(ttl - age) : 0);

		if (entry->offered && !entry->withdrawn)
			first = clock_earlier(first, at);
	}
	return first;
}
