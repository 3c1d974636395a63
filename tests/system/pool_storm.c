/* Random operations of eight processes on one pool, amid kills of any of them and of gpuwmd: `make storm` does 100,000 of them,
 * `make check` some. GPUWM_POOL_STORM_OPERATIONS says how many; GPUWM_STORM_SEED repeats what they throw. */
#include "pool_storm.h"

#include <stdio.h>

STORM_SUITE(pool_storm);

#define OPERATIONS_DEFAULT (SANITIZED ? 1000 : 2000)

/* ---- beginning ----------------------------------------------------------- */

/* They outlive every process. */
static void regions_make(struct pool_storm *s)
{
	struct gpuwm_region_options options = GPUWM_OPTIONS(struct gpuwm_region_options);
	struct gpuwm_region *region;

	options.writers = GPUWM_WRITERS_MANY;
	options.owner = GPUWM_OWNER_UID;
	options.name = "queue";
	options.kind = GPUWM_REGION_QUEUE;
	options.items = POOL_QUEUE_ITEMS;
	options.item_bytes = sizeof(struct pool_note);
	OK(gpuwm_region_create(s->storm.client, &options, &region));
	OK(gpuwm_region_close(region));
	options.name = "pool";
	options.kind = GPUWM_REGION_POOL;
	options.device = s->storm.d->device;
	options.items = options.item_bytes = 0;
	options.bytes = POOL_BYTES;
	options.chunks = POOL_CHUNKS;
	options.ttl_ms = POOL_TTL_MS;
	OK(gpuwm_region_create(s->storm.client, &options, &region));
	OK(gpuwm_region_close(region));
	OK(gpuwm_region_open(s->storm.client, "pool", 0, 0, &s->pool));
}

static void starting(struct storm *s, unsigned worker)
{
	struct pool_told *told = &pool_board_of(s)->told[worker];

	atomic_store(&told->owns, false);
	told->filling = told->reading = 0;
}

/* ---- going on ------------------------------------------------------------ */

static bool all_probed(const struct pool_board *board)
{
	for (unsigned i = 0; i < POOL_WORKERS; i++) {
		if (!atomic_load(&board->told[i].probed))
			return false;
	}
	return true;
}

static void check(struct storm *s)
{
	struct pool_board *board = pool_board_of(s);

	pool_check((struct pool_storm *)s);
	atomic_store(&board->probe, true);
	STORM_UNTIL(s, all_probed(board));
	atomic_store(&board->probe, false);
}

static void worker_kill(struct storm *s)
{
	const unsigned number = (unsigned)dice_throw(&s->dice, POOL_WORKERS);

	((struct pool_storm *)s)->owner_kills += atomic_load(&pool_board_of(s)->told[number].owns);
	storm_actor_kill(s, number);
	storm_actor_start(s, number);
}

static void strike(struct storm *s)
{
	pause_us(dice_throw(&s->dice, 1000));
	if (dice_percent(&s->dice, 10))
		storm_gpuwmd_kill(s);
	else
		worker_kill(s);
}

/* ---- the end ------------------------------------------------------------- */

/* All is one free piece. */
static void check_empty(struct pool_storm *s)
{
	struct gpuwm_pool_figures figures;
	struct gpuwm_chunk *chunk;

	OK(gpuwm_region_close(s->pool));
	OK(gpuwm_region_open(s->storm.client, "pool", GPUWM_REGION_OWN, 0, &s->pool));
	OK(gpuwm_chunk_alloc(s->pool, POOL_BYTES, SOON_MS, &chunk));
	OK(gpuwm_chunk_discard(chunk));
	OK(gpuwm_pool_figures(s->pool, &figures));
	cr_assert(figures.used == 0 && figures.chunks == 0 && figures.waiting == 0);
	cr_assert(figures.free == POOL_BYTES && figures.largest_free == POOL_BYTES);
	OK(gpuwm_region_close(s->pool));
}

Test(pool_storm, no_chunk_is_lost_or_used_twice, .timeout = 3000)
{
	static const struct storm_play play = {
		.actor = pool_worker_main,
		.operations = pool_operations,
		.actors = POOL_WORKERS,
		.board_bytes = sizeof(struct pool_board),
		.check_each = 1000,
		.burst = 150,
		.beyond = 20,
		.starting = starting,
		.strike = strike,
		.check = check,
	};
	struct pool_storm s = {0};

	SKIP_UNLESS(backend() != BACKEND_CUDA, "the CPU looks at the memory");
	storm_begin(&s.storm, "pool_storm", "GPUWM_POOL_STORM_OPERATIONS", OPERATIONS_DEFAULT);
	storm_serve(&s.storm, &(struct kept){0});
	regions_make(&s);
	storm_populate(&s.storm, &play);
	storm_run(&s.storm);
	storm_finish(&s.storm);
	check_empty(&s);
	OK(gpuwm_region_remove(s.storm.client, "pool"));
	OK(gpuwm_region_remove(s.storm.client, "queue"));
	storm_tell(&s.storm);
	fprintf(stderr, "  %u kills were of owners\n", s.owner_kills);
	storm_end(&s.storm);
}
