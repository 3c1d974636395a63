/* Why a pool has no room, and what is in use of it. */
#include "pool.h"

#include "../../base/clock.h"

#include <errno.h>
#include <stdio.h>

#define ADVICE "finish chunks sooner, wait for longer, make a larger pool, or give it a time to live"

/* Who keeps the chunk, as the subject of a sentence. */
#define HOLDER_TEXT (REGION_USER_TEXT + 64)
static void holder_text(const struct pool *pool, const struct pool_entry *entry, char ret[HOLDER_TEXT])
{
	const uint64_t word = atomic_load(&chunk_entry(&entry->use)->word);
	const uint32_t waiting = chunk_word_users(word, CHUNK_WAITING);
	uint32_t holding = chunk_word_users(word, CHUNK_HOLDING);
	char who[REGION_USER_TEXT];

	/* Some of them have finished with it in a stream. */
	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		if (atomic_load(chunk_finished(&entry->use, slot)) >= entry->use.generation)
			holding &= ~(UINT32_C(1) << slot);
	}
	if (!entry->offered) {
		snprintf(ret, HOLDER_TEXT, "this process, which fills it");
	} else if (holding) {
		region_user_text(pool->region, (unsigned)__builtin_ctz(holding), who);
		snprintf(ret, HOLDER_TEXT, "%s, which reads it", who);
	} else if (waiting) {
		region_user_text(pool->region, (unsigned)__builtin_ctz(waiting), who);
		snprintf(ret, HOLDER_TEXT, "%s, which has not taken it", who);
	} else if (chunk_word_open(word) > 0) {
		snprintf(ret, HOLDER_TEXT, "%u readers that have not come", chunk_word_open(word));
	} else {
		snprintf(ret, HOLDER_TEXT, "a stream that still writes it");
	}
}

static const struct pool_entry *oldest(const struct pool *pool)
{
	const struct pool_entry *found = pool->used;

	for (const struct pool_entry *entry = found; entry; entry = entry->next) {
		if (entry->since_ms < found->since_ms)
			found = entry;
	}
	return found;
}

bool pool_oldest_text(const struct pool *pool, char ret[POOL_OLDEST_TEXT])
{
	const struct pool_entry *entry = oldest(pool);
	const uint64_t now_ms = clock_boot_ms();
	char holder[HOLDER_TEXT];

	if (!entry)
		return false;
	holder_text(pool, entry, holder);
	snprintf(ret, POOL_OLDEST_TEXT, "The oldest chunk, of %llu bytes, is held for %.1f s by %s",
		 (unsigned long long)entry->use.bytes,
		 now_ms > entry->since_ms ? (double)(now_ms - entry->since_ms) / 1000 : 0.0, holder);
	return true;
}

/* What a request wants, as the object of a sentence. */
#define WISH_TEXT 80
static void wish_text(const struct pool_request *request, char ret[WISH_TEXT])
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < request->count; i++)
		bytes += request->chunks[i]->use.bytes;
	if (request->count == 1)
		snprintf(ret, WISH_TEXT, "%llu bytes", (unsigned long long)bytes);
	else
		snprintf(ret, WISH_TEXT, "%llu bytes in %zu chunks", (unsigned long long)bytes, request->count);
}

/* Those who came before the waiter, as a sentence; "" if nobody did. */
#define LINE_TEXT (WISH_TEXT + 96)
static void line_text(const struct pool *pool, const struct pool_waiter *waiter, char ret[LINE_TEXT])
{
	const struct pool_waiter *before = pool->waiters;
	char wish[WISH_TEXT];
	uint32_t count = 0;

	ret[0] = 0;
	while (before && before != waiter) {
		count++;
		before = before->next;
	}
	if (count == 0)
		return;
	wish_text(&pool->waiters->request, wish);
	snprintf(ret, LINE_TEXT, "%u callers of this process wait before it, the first one for %s; ", count,
		 wish);
}

int pool_is_full(const struct pool *pool, const struct pool_request *request, const struct pool_waiter *waiter,
		 struct error *error)
{
	char wish[WISH_TEXT], line[LINE_TEXT], holder[POOL_OLDEST_TEXT] = "Nobody holds a chunk";

	wish_text(request, wish);
	line_text(pool, waiter, line);
	if (!pool_oldest_text(pool, holder) && !line[0])
		return error_set(error, -EAGAIN, "make another region",
				 "every chunk of region %s has been used as often as is possible",
				 region_title(pool->region));
	return error_set(
		error, -EAGAIN, ADVICE,
		"region %s has no room for %s: %s%u of %u chunks are in use, %llu bytes are free, at most "
		"%llu in one piece. %s",
		region_title(pool->region), wish, line, pool->used_count, pool->region->control.count,
		(unsigned long long)pool->space.free, (unsigned long long)pool_space_largest(&pool->space),
		holder);
}
