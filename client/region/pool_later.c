/* Allocating with a function that a thread of the library calls. The thread serves all such callers of a pool, each in its turn. */
#include "../../base/clock.h"
#include "chunk.h"
#include "pool.h"
#include "../../base/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* The program's functions run on it. */
#define STACK_BYTES MIB(1)

/* Under the lock, which it gives up while the function runs. The waiter has left the line. code: 0: it has its chunks. */
static void waiter_answer(struct pool *pool, struct pool_waiter *waiter, int code, const struct error *error)
{
	pthread_mutex_unlock(&pool->lock);
	if (code < 0) {
		pool_request_drop(&waiter->request);
		client_fail(error);
	}
	waiter->fn(code < 0 ? NULL : waiter->request.chunks, code, waiter->user_data);
	free(waiter);
	pthread_mutex_lock(&pool->lock);
	pool->later--;
	/* Somebody may wait to close the region. */
	pthread_cond_broadcast(&pool->turn);
}

/* Returns the oldest one whose time is over, or NULL. */
static struct pool_waiter *waiter_find_expired(const struct pool *pool)
{
	struct pool_waiter *waiter = pool->waiters;

	while (waiter && (!waiter->fn || clock_left(waiter->deadline) != 0))
		waiter = waiter->next;
	return waiter;
}

/* Serves one, if it can. */
static bool waiters_serve_one(struct pool *pool)
{
	struct pool_waiter *waiter = pool->cancelled;
	struct error error;
	int r = -EAGAIN;

	if (waiter) {
		DL_DELETE(pool->cancelled, waiter);
		error_set(&error, -ECANCELED, NULL, "the request was cancelled");
		waiter_answer(pool, waiter, -ECANCELED, &error);
		return true;
	}
	waiter = pool->waiters;
	if (waiter && waiter->fn)
		r = pool_try(pool, &waiter->request, &error);
	if (r == -EAGAIN) {
		waiter = waiter_find_expired(pool);
		if (!waiter)
			return false;
		pool_is_full(pool, &waiter->request, waiter, &error);
	}
	pool_wait_end(pool, waiter);
	waiter_answer(pool, waiter, r, &error);
	return true;
}

/* It is the turn of the first one: it waits for room. The others wait for their turn. */
static void waiters_sleep(struct pool *pool, struct nap *nap)
{
	int64_t deadline = -1;

	for (const struct pool_waiter *waiter = pool->waiters; waiter; waiter = waiter->next) {
		if (waiter->fn)
			deadline = clock_earlier(deadline, waiter->deadline);
	}
	if (!pool->waiters || !pool->waiters->fn) {
		clock_wait(&pool->turn, &pool->lock, deadline);
		*nap = nap_begin(pool->region);
		return;
	}
	deadline = clock_earlier(deadline, pool_next_expiry(pool));
	pthread_mutex_unlock(&pool->lock);
	nap_take(nap, deadline);
	pthread_mutex_lock(&pool->lock);
}

static void *waiters_serve(void *data)
{
	struct pool *pool = data;
	struct nap nap = nap_begin(pool->region);

	pthread_setname_np(pthread_self(), "gpuwm-pool");
	pthread_mutex_lock(&pool->lock);
	while (!pool->stopping) {
		nap_look(&nap);
		if (waiters_serve_one(pool))
			nap = nap_begin(pool->region);
		else
			waiters_sleep(pool, &nap);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

/* Under the lock. */
static int pool_thread_start(struct pool *pool, struct error *error)
{
	int r;

	if (pool->has_thread)
		return 0;
	r = thread_begin(&pool->thread, STACK_BYTES, waiters_serve, pool);
	if (r != 0)
		return error_set(error, -EAGAIN, "raise the limit of threads (RLIMIT_NPROC, pids.max)",
				 "the thread that waits for chunks could not be made: %s", strerror(r));
	pool->has_thread = true;
	return 0;
}

/* Wakes the thread, which sleeps for the bell, or for its turn. */
static void pool_thread_wake(struct pool *pool)
{
	pthread_cond_broadcast(&pool->turn);
	control_ring(&pool->region->control.head->freed);
}

/* One piece of memory: the waiter, and its handles. */
static int waiter_new(struct pool *pool, const struct gpuwm_chunks_wish *wish, struct pool_waiter **ret,
		      struct error *error)
{
	const size_t most = pool->region->control.count;
	struct gpuwm_chunk **chunks;
	struct pool_waiter *waiter;
	int r;

	/* pool_request_begin refuses more than `most`. */
	waiter = calloc(1, sizeof(*waiter) + (wish->count < most ? wish->count : most) * sizeof(*chunks));
	if (!waiter)
		return error_set(error, -ENOMEM, NULL, "out of memory for a caller that waits");
	chunks = (struct gpuwm_chunk **)(waiter + 1);
	r = pool_request_begin(pool, wish->bytes, wish->count, chunks, &waiter->request, error);
	if (r < 0)
		free(waiter);
	else
		*ret = waiter;
	return r;
}

int gpuwm_chunks_alloc_later(struct gpuwm_region *region, const struct gpuwm_chunks_wish *wish,
			     gpuwm_chunks_fn *fn, void *user_data, uint64_t *ret_request)
{
	struct pool_waiter *waiter = NULL;
	struct pool *pool;
	struct error error;
	int r = pool_of(region, &pool, &error);

	if (r == 0 && (!wish || !fn))
		r = error_set(&error, -EINVAL, NULL, "the wish, or the function to call, was not given");
	if (r == 0)
		r = waiter_new(pool, wish, &waiter, &error);
	if (r < 0)
		return client_fail(&error);
	waiter->deadline = clock_deadline(wish->wait_ms);
	waiter->fn = fn;
	waiter->user_data = user_data;
	pthread_mutex_lock(&pool->lock);
	r = pool_thread_start(pool, &error);
	if (r == 0) {
		waiter->number = ++pool->numbered;
		pool->later++;
		pool_wait_begin(pool, waiter);
		/* The thread may sleep for later deadlines than the new one's. */
		pool_thread_wake(pool);
		/* The function may have been called when this one returns. */
		if (ret_request)
			*ret_request = waiter->number;
	}
	pthread_mutex_unlock(&pool->lock);
	if (r == 0)
		return 0;
	pool_request_drop(&waiter->request);
	free(waiter);
	return client_fail(&error);
}

/* Under the lock. */
static int waiter_cancel(struct pool *pool, uint64_t number, struct error *error)
{
	struct pool_waiter *waiter = pool->waiters;

	while (waiter && !(waiter->fn && waiter->number == number))
		waiter = waiter->next;
	if (!waiter)
		return error_set(error, -ENOENT, NULL, "request %llu does not wait for chunks of region %s",
				 (unsigned long long)number, region_title(pool->region));
	pool_wait_end(pool, waiter);
	DL_APPEND(pool->cancelled, waiter);
	pool_thread_wake(pool);
	return 0;
}

int gpuwm_chunks_alloc_cancel(struct gpuwm_region *region, uint64_t request)
{
	struct pool *pool;
	struct error error;
	int r = pool_of(region, &pool, &error);

	if (r < 0)
		return client_fail(&error);
	pthread_mutex_lock(&pool->lock);
	r = waiter_cancel(pool, request, &error);
	pthread_mutex_unlock(&pool->lock);
	return r < 0 ? client_fail(&error) : 0;
}
