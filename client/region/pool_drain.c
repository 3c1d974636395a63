/* Waiting until nothing of a pool is in use. */
#include "../../base/clock.h"
#include "nap.h"
#include "pool.h"

#include <errno.h>

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
