/* Allocating chunks, and waiting for them. */
#include "pool.h"

#include "../../base/clock.h"
#include "chunk.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

void pool_wait_begin(struct pool *pool, struct pool_waiter *waiter)
{
	DL_APPEND(pool->waiters, waiter);
	pool->waiting++;
	pthread_cond_broadcast(&pool->turn);
}

void pool_wait_end(struct pool *pool, struct pool_waiter *waiter)
{
	DL_DELETE(pool->waiters, waiter);
	pool->waiting--;
	pthread_cond_broadcast(&pool->turn);
}

static int wait_in_turn(struct pool *pool, const struct pool_waiter *waiter, struct error *error)
{
	struct nap nap = nap_begin(pool->region);
	int64_t until;
	int r;

	for (;;) {
		if (pool->waiters != waiter) {
			if (clock_left(waiter->deadline) == 0)
				return -EAGAIN;
			clock_wait(&pool->turn, &pool->lock, waiter->deadline);
			continue;
		}
		nap_look(&nap);
		r = pool_try(pool, &waiter->request, error);
		if (r != -EAGAIN || clock_left(waiter->deadline) == 0)
			return r;
		/* The first waiter sleeps without the lock. */
		until = clock_earlier(waiter->deadline, pool_next_expiry(pool));
		pthread_mutex_unlock(&pool->lock);
		nap_take(&nap, until);
		pthread_mutex_lock(&pool->lock);
	}
}

/* Under the lock. */
static int alloc(struct pool *pool, const struct pool_request *request, int64_t wait_ms, struct error *error)
{
	struct pool_waiter waiter = {.request = *request, .deadline = clock_deadline(wait_ms)};
	int r = pool->waiters ? -EAGAIN : pool_try(pool, request, error);

	if (r != -EAGAIN)
		return r;
	if (wait_ms == 0)
		return pool_is_full(pool, request, NULL, error);
	pool_wait_begin(pool, &waiter);
	r = wait_in_turn(pool, &waiter, error);
	if (r == -EAGAIN)
		pool_is_full(pool, request, &waiter, error);
	pool_wait_end(pool, &waiter);
	return r;
}

/* chunks: room for the handles, which is set also if the call fails. */
static int alloc_all(struct gpuwm_region *region, const uint64_t *bytes, size_t count, int64_t wait_ms,
		     struct gpuwm_chunk **chunks)
{
	struct pool_request request;
	struct pool *pool;
	struct error error;
	int r = pool_of(region, &pool, &error);

	if (r == 0)
		r = pool_request_begin(pool, bytes, count, chunks, &request, &error);
	if (r < 0)
		return client_fail(&error);
	pthread_mutex_lock(&pool->lock);
	r = alloc(pool, &request, wait_ms, &error);
	pthread_mutex_unlock(&pool->lock);
	if (r == 0)
		return 0;
	pool_request_drop(&request);
	return client_fail(&error);
}

int gpuwm_chunk_alloc(struct gpuwm_region *region, uint64_t bytes, int64_t wait_ms,
		      struct gpuwm_chunk **ret_chunk)
{
	struct gpuwm_chunk *chunk;
	int r = alloc_all(region, &bytes, 1, wait_ms, &chunk);

	if (r == 0)
		*ret_chunk = chunk;
	return r;
}

int gpuwm_chunks_alloc(struct gpuwm_region *region, const uint64_t *bytes, size_t count, int64_t wait_ms,
		       struct gpuwm_chunk **ret_chunks)
{
	struct gpuwm_chunk **chunks = calloc(count ? count : 1, sizeof(*chunks));
	struct error error;
	int r;

	if (!chunks) {
		error_set(&error, -ENOMEM, NULL, "out of memory for %zu chunks", count);
		return client_fail(&error);
	}
	r = alloc_all(region, bytes, count, wait_ms, chunks);
	for (size_t i = 0; r == 0 && i < count; i++)
		ret_chunks[i] = chunks[i];
	free(chunks);
	return r;
}
