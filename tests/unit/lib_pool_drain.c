/* Draining a pool: it waits until nothing is in use, and is in nobody's way. */
#include "tests/support/any/between.h"
#include "tests/support/any/until.h"
#include "tests/support/lib/pools.h"

#define OWNER 0
#define READER 1
#define BIT(slot) (UINT32_C(1) << (slot))

static struct shared_region shared;
static struct gpuwm_region *pool, *reader;

static void begin_with(uint64_t ttl_ms)
{
	share(&shared, &(struct shared_wish){.bytes = MIB(2), .chunks = 16, .ttl_ms = ttl_ms});
	pool = open_as(&shared, OWNER, true);
	reader = open_as(&shared, READER, false);
}

static void end(void)
{
	close_as(&shared, reader);
	close_as(&shared, pool);
	share_end(&shared);
}

TestSuite(pool_drain, .timeout = 60);

TestBetween(pool_drain, names_who_holds_the_oldest_chunk, begin_with(0), end())
{
	struct gpuwm_token token;
	struct gpuwm_chunk *chunk;

	OK(gpuwm_pool_drain(pool, 0));
	token = offer(pool, 1, BIT(READER), 0);
	FAILS(gpuwm_pool_drain(pool, 0), -ETIMEDOUT);
	SAYS("process 1001 (user-b), which has not taken it");
	FAILS(gpuwm_pool_drain(pool, 5), -ETIMEDOUT);
	OK(gpuwm_chunk_finish(take(reader, &token)));
	OK(gpuwm_pool_drain(pool, 0));
	chunk = alloc(pool, 1);
	FAILS(gpuwm_pool_drain(pool, 0), -ETIMEDOUT);
	SAYS("this process, which fills it");
	OK(gpuwm_chunk_discard(chunk));
	OK(gpuwm_pool_drain(pool, 0));
	FAILS(gpuwm_pool_drain(reader, 0), -EPERM);
}

static _Atomic int drained;

static void *drain(void *data)
{
	(void)data;
	drained = gpuwm_pool_drain(pool, -1);
	return NULL;
}

TestBetween(pool_drain, is_in_nobodys_way, begin_with(0), end())
{
	struct gpuwm_token token = offer(pool, 1, BIT(READER), 0);
	struct gpuwm_pool_figures figures;
	pthread_t thread;

	drained = 1;
	cr_assert(eq(int, pthread_create(&thread, NULL, drain, NULL), 0));
	for (unsigned i = 0; i < 100; i++)
		OK(gpuwm_chunk_discard(alloc(pool, MIB(1))));
	OK(gpuwm_pool_figures(pool, &figures));
	cr_assert(figures.waiting == 0 && drained == 1);
	OK(gpuwm_chunk_finish(take(reader, &token)));
	pthread_join(thread, NULL);
	cr_assert(eq(int, drained, 0));
}

TestBetween(pool_drain, takes_nothing_from_late_readers, begin_with(1), end())
{
	struct gpuwm_token token = offer(pool, MIB(2), BIT(READER), 0);

	FAILS(gpuwm_pool_drain(pool, 30), -ETIMEDOUT);
	OK(gpuwm_chunk_finish(take(reader, &token)));
	OK(gpuwm_pool_drain(pool, -1));
}

TestBetween(pool_drain, ends_with_the_region, begin_with(0), end())
{
	struct gpuwm_token token = offer(pool, 1, BIT(READER), 0);
	struct gpuwm_chunk *chunk = take(reader, &token);

	control_ended(&shared.control, CONTROL_REMOVED, 0);
	FAILS(gpuwm_pool_drain(pool, -1), -ESHUTDOWN);
	OK(gpuwm_chunk_finish(chunk));
	OK(gpuwm_pool_drain(pool, -1));
}
