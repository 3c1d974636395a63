/* What the owner does with a chunk that it has filled. */
#include "chunk.h"
#include "../../base/clock.h"
#include "pool.h"

#include <errno.h>
#include <string.h>

/* How a chunk is handed over. */
struct offer {
	const struct gpuwm_readers *readers;
	bool in_stream;
	void *stream;
};

static int check_readers(const struct gpuwm_region *region, const struct gpuwm_readers *readers,
			 struct error *error)
{
	if (!readers || (readers->named == 0 && readers->others == 0))
		return error_set(error, -EINVAL, "name a reader, or discard the chunk",
				 "a chunk is offered to nobody");
	if (readers->others > CHUNK_OPEN_MAX || readers->named >> REGION_USERS_MAX)
		return error_set(error, -EINVAL, "at most 15 others, and slots 0 to 25",
				 "a chunk can't be offered to %u others and the slots 0x%x", readers->others,
				 readers->named);
	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		if (readers->named >> slot & 1 && !atomic_load(&region->control.head->users[slot].here))
			return error_set(error, -ESRCH, "name slots of processes that have the region open",
					 "slot %u of region %s has no user", slot, region_title(region));
	}
	return 0;
}

/* Under the pool's lock. If the stream refuses, the chunk is not offered. */
static int chunk_hand_over(struct pool_entry *entry, const struct offer *offer, struct error *error)
{
	const struct gpuwm_readers *readers = offer->readers;
	const struct chunk_use *use = &entry->use;
	struct control_chunk *to = chunk_entry(use);
	uint64_t now;
	int r = check_readers(use->region, readers, error);

	if (r == 0)
		r = region_running(use->region, error);
	if (r == 0 && offer->in_stream)
		r = region_words_write(use->region, offer->stream, &to->written, use->generation, error);
	if (r < 0)
		return r;
	if (!offer->in_stream)
		atomic_store(&to->written, use->generation);
	now = atomic_load(&to->word);
	entry->since_ms = clock_boot_ms();
	atomic_store(&to->since_ms, entry->since_ms);
	while (!atomic_compare_exchange_weak(
		&to->word, &now, chunk_word_offered(now, use->writer, readers->named, readers->others)))
		;
	entry->offered = true;
	control_forget_absent(&use->region->control, use->chunk);
	return 0;
}

static struct gpuwm_token token_of(const struct chunk_use *use)
{
	struct gpuwm_token token = {
		.generation = use->generation,
		.offset = use->offset,
		.bytes = use->bytes,
		.chunk = use->chunk,
		.writer = use->writer,
	};

	memcpy(token.region, use->region->id.bytes, sizeof(token.region));
	return token;
}

static int offer_chunk(struct gpuwm_chunk *chunk, const struct offer *offer, struct gpuwm_token *ret,
		       struct error *error)
{
	struct pool *pool;
	int r = chunk_usable(chunk, true, error);

	if (r < 0)
		return r;
	pool = chunk->use.region->pool;
	pthread_mutex_lock(&pool->lock);
	r = chunk_hand_over(&pool->entries[chunk->use.chunk], offer, error);
	pthread_mutex_unlock(&pool->lock);
	if (r < 0)
		return r;
	*ret = token_of(&chunk->use);
	chunk_free(chunk);
	return 0;
}

int gpuwm_chunk_offer(struct gpuwm_chunk *chunk, const struct gpuwm_readers *readers,
		      struct gpuwm_token *ret_token)
{
	const struct offer offer = {.readers = readers};
	struct error error;
	int r = offer_chunk(chunk, &offer, ret_token, &error);

	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_chunk_offer_in_stream(struct gpuwm_chunk *chunk, const struct gpuwm_readers *readers, void *stream,
				struct gpuwm_token *ret_token)
{
	const struct offer offer = {.readers = readers, .in_stream = true, .stream = stream};
	struct error error;
	int r = offer_chunk(chunk, &offer, ret_token, &error);

	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_chunk_discard(struct gpuwm_chunk *chunk)
{
	struct error error;
	struct pool *pool;
	int r = chunk_usable(chunk, true, &error);

	if (r < 0)
		return client_fail(&error);
	pool = chunk->use.region->pool;
	pthread_mutex_lock(&pool->lock);
	atomic_store(&chunk_entry(&chunk->use)->written, chunk->use.generation);
	chunk_finish(&chunk->use);
	pool_release(pool, &pool->entries[chunk->use.chunk]);
	pthread_mutex_unlock(&pool->lock);
	chunk_free(chunk);
	return 0;
}

int gpuwm_token_withdraw(struct gpuwm_region *region, const struct gpuwm_token *token)
{
	struct pool_entry *entry;
	struct chunk_use use;
	struct pool *pool;
	struct error error;
	int r = pool_of(region, &pool, &error);

	if (r == 0)
		r = chunk_of_token(region, token, &use, &error);
	if (r < 0)
		return client_fail(&error);
	pthread_mutex_lock(&pool->lock);
	entry = &pool->entries[use.chunk];
	/* A chunk that is in use again was finished with. */
	if (entry->use.generation == use.generation && entry->offered) {
		entry->withdrawn = true;
		control_withdraw(&region->control, use.chunk);
		control_ring(&region->control.head->freed);
	}
	pthread_mutex_unlock(&pool->lock);
	return 0;
}
