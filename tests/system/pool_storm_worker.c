/* A process in the storm over a pool. */
#include "pool_storm.h"

#define DRAIN_MS 30000

/* ---- bytes --------------------------------------------------------------- */

void pool_fill(const struct gpuwm_chunk *chunk, uint64_t key)
{
	uint64_t *words = gpuwm_chunk_address(chunk);

	for (uint64_t i = 0; i < gpuwm_chunk_bytes(chunk) / 8; i++)
		words[i] = key + i * UINT64_C(0x9E3779B97F4A7C15);
}

bool pool_holds(const struct gpuwm_chunk *chunk, uint64_t key)
{
	const uint64_t *words = gpuwm_chunk_address(chunk);

	for (uint64_t i = 0; i < gpuwm_chunk_bytes(chunk) / 8; i++) {
		if (words[i] != key + i * UINT64_C(0x9E3779B97F4A7C15))
			return false;
	}
	return true;
}

/* ---- being parked ---------------------------------------------------------- */

static void tell(struct pool_worker *w)
{
	const char *first = gpuwm_region_address(w->pool);

	w->told->filling = w->filling_count;
	w->told->reading = w->reading_count;
	for (unsigned i = 0; i < w->filling_count; i++)
		w->told->filled_at[i] = (uint64_t)((char *)gpuwm_chunk_address(w->filling[i].chunk) - first);
	for (unsigned i = 0; i < w->reading_count; i++)
		w->told->tokens[i] = w->reading[i].note.token;
}

static void park(struct storm_actor *a)
{
	struct pool_worker *w = (struct pool_worker *)a;

	storm_stream_wait(a->stream);
	tell(w);
	atomic_store(&w->told->probed, false);
}

/* What is free by the control memory is free by the owner's own account. */
static void probe(struct storm_actor *a)
{
	struct pool_worker *w = (struct pool_worker *)a;
	struct gpuwm_pool_figures figures;
	struct gpuwm_chunk *chunk;

	if (!atomic_load(&w->board->probe) || atomic_load(&w->told->probed))
		return;
	CHILD_ASSERT(gpuwm_pool_figures(w->pool, &figures) == 0);
	if (w->owns && figures.largest_free > 0 && figures.chunks < POOL_CHUNKS) {
		CHILD_ASSERT(gpuwm_chunk_alloc(w->pool, figures.largest_free, 0, &chunk) == 0);
		CHILD_ASSERT(gpuwm_chunk_discard(chunk) == 0);
	}
	atomic_store(&w->told->probed, true);
}

static unsigned mood(const struct storm_actor *a)
{
	return ((const struct pool_worker *)a)->owns ? POOL_OWNER : POOL_OTHER;
}

/* ---- all of it --------------------------------------------------------------- */

/* It withdraws nothing: the tokens' time to live has to be enough. */
static void finish(struct pool_worker *w)
{
	struct gpuwm_chunk *chunk;

	pool_drop_all(w);
	tell(w);
	if (w->owns) {
		CHILD_ASSERT(gpuwm_chunk_alloc(w->pool, POOL_BYTES, DRAIN_MS, &chunk) == 0);
		CHILD_ASSERT(gpuwm_chunk_discard(chunk) == 0);
	}
	CHILD_ASSERT(gpuwm_region_close(w->pool) == 0);
	CHILD_ASSERT(gpuwm_region_close(w->queue) == 0);
}

int pool_worker_main(int argc, char **argv)
{
	static const struct storm_part part = {
		.operations = pool_operations, .mood = mood, .park = park, .parked = probe};
	static struct pool_worker w;

	storm_actor_begin(&w.actor, argc, argv, sizeof *w.board);
	w.board = (struct pool_board *)w.actor.board;
	w.told = &w.board->told[w.actor.number];
	pool_open(&w);
	w.queue = storm_region_open(&w.actor, "queue", GPUWM_REGION_WRITE);
	storm_actor_work(&w.actor, &part);
	finish(&w);
	storm_actor_end(&w.actor);
	return 0;
}
