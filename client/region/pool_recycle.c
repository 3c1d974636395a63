/* Which chunks are free again, and waiting until all are. */
#include "pool.h"

#include "../../base/clock.h"
#include "chunk.h"

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

/* ---- draining ------------------------------------------------------------ */

/* Under the lock, which it gives up while it sleeps. */
static int pool_drain(struct pool *pool, int64_t deadline, struct error *error)
{
	struct nap nap = nap_begin(pool->region);
	char holder[POOL_OLDEST_TEXT];
	int r;

	for (;;) {
		nap_look(&nap);
		r = pool_recycle(pool, false, error);
		if (r < 0 || pool->used_count == 0)
			return r;
		r = region_running(pool->region, error);
		if (r < 0)
			return r;
		if (clock_left(deadline) == 0) {
			pool_oldest_text(pool, holder);
			return error_set(error, -ETIMEDOUT, "wait for longer, or withdraw the chunks",
					 "readers have not finished: %u chunks of region %s are in use. %s",
					 pool->used_count, region_title(pool->region), holder);
		}
		pthread_mutex_unlock(&pool->lock);
		nap_take(&nap, deadline);
		pthread_mutex_lock(&pool->lock);
	}
}

int gpuwm_pool_drain(struct gpuwm_region *region, int64_t wait_ms)
{
	struct pool *pool;
	struct error error;
	int r = pool_of(region, &pool, &error);

	if (r < 0)
		return client_fail(&error);
	pthread_mutex_lock(&pool->lock);
	r = pool_drain(pool, clock_deadline(wait_ms), &error);
	pthread_mutex_unlock(&pool->lock);
	return r < 0 ? client_fail(&error) : 0;
}
