/* Many threads allocate, hand over and free at the same time: no byte belongs to two chunks, and none is lost. */
#include "tests/support/lib/pools.h"

#include <stdlib.h>

#define THREADS 32
#define STEPS 3000
#define POOL_BYTES MIB(2)
#define UNITS (POOL_BYTES / CHUNK_ALIGN)
#define READERS 4
#define SEVERAL 5

static struct shared_region shared;
static struct gpuwm_region *pool, *readers[READERS];
static _Atomic unsigned owner[UNITS]; /* of each piece; 0: it is free */
static _Atomic unsigned wrong, allocated, full;

static void change_owner(const struct gpuwm_chunk *chunk, unsigned from, unsigned to)
{
	const uint64_t first = chunk->use.offset / CHUNK_ALIGN;
	const uint64_t units = (chunk->use.bytes + CHUNK_ALIGN - 1) / CHUNK_ALIGN;

	for (uint64_t i = first; i < first + units; i++)
		wrong += atomic_exchange(&owner[i], to) != from;
}

/* Returns 0, or the code of what failed. */
static int hand_over(struct gpuwm_chunk *chunk, unsigned who, unsigned slot, bool named)
{
	const struct gpuwm_readers to = {named ? UINT32_C(1) << slot : 0, named ? 0 : 1};
	struct gpuwm_token token;
	int r = gpuwm_chunk_offer(chunk, &to, &token);

	if (r == 0)
		r = gpuwm_chunk_take(readers[slot - 1], &token, 0, &chunk);
	if (r < 0)
		return r;
	change_owner(chunk, who, 0);
	return gpuwm_chunk_finish(chunk);
}

/* Several chunks at once: nobody who waits for them holds some of them. */
static int step_of_several(unsigned who, unsigned *seed)
{
	struct gpuwm_chunk *chunks[SEVERAL];
	uint64_t bytes[SEVERAL];
	int r;

	for (unsigned i = 0; i < SEVERAL; i++)
		bytes[i] = 1 + (unsigned)rand_r(seed) % (POOL_BYTES / SEVERAL - CHUNK_ALIGN);
	r = gpuwm_chunks_alloc(pool, bytes, SEVERAL, -1, chunks);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < SEVERAL; i++)
		change_owner(chunks[i], 0, who);
	for (unsigned i = 0; r == 0 && i < SEVERAL; i++)
		r = hand_over(chunks[i], who, 1 + i % READERS, true);
	return r;
}

static int step(unsigned who, unsigned *seed)
{
	const unsigned what = (unsigned)rand_r(seed);
	const uint64_t bytes = 1 + (unsigned)rand_r(seed) % (what % 16 ? POOL_BYTES / 64 : POOL_BYTES / 2);
	struct gpuwm_chunk *chunk;
	int r = gpuwm_chunk_alloc(pool, bytes, what % 3 ? -1 : 0, &chunk);

	if (r == -EAGAIN) {
		full++;
		return 0;
	}
	if (r < 0)
		return r;
	allocated++;
	change_owner(chunk, 0, who);
	if (what % 5)
		return hand_over(chunk, who, 1 + what % READERS, what % 2);
	change_owner(chunk, who, 0);
	return gpuwm_chunk_discard(chunk);
}

static void *work(void *data)
{
	unsigned seed = (unsigned)(uintptr_t)data;
	const unsigned who = seed;

	for (unsigned i = 0; i < STEPS; i++)
		wrong += (i % 8 ? step : step_of_several)(who, &seed) != 0;
	return NULL;
}

Test(pool_threads, no_byte_belongs_to_two_and_none_is_lost, .timeout = 240)
{
	pthread_t threads[THREADS];

	share(&shared, &(struct shared_wish){.bytes = POOL_BYTES, .chunks = 24});
	pool = open_as(&shared, 0, true);
	for (unsigned i = 0; i < READERS; i++)
		readers[i] = open_as(&shared, i + 1, false);
	for (uintptr_t i = 0; i < THREADS; i++)
		cr_assert(eq(int, pthread_create(&threads[i], NULL, work, (void *)(i + 1)), 0));
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	cr_assert(eq(u32, wrong, 0));
	cr_assert(allocated > THREADS * STEPS / 2 && full > 0, "%u allocated, %u times full", allocated, full);
	all_is_free(pool);
	for (unsigned i = 0; i < READERS; i++)
		close_as(&shared, readers[i]);
	close_as(&shared, pool);
	share_end(&shared);
}
