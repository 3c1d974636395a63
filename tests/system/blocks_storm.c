/* Random operations of eight processes on one region of blocks, amid kills of any of them and of gpuwmd: `make storm` does 100,000 of
 * them, `make check` some. GPUWM_BLOCKS_STORM_OPERATIONS says how many; GPUWM_STORM_SEED repeats what they throw. */
#include "blocks_storm.h"

#include <stdio.h>

STORM_SUITE(blocks_storm);

#define OPERATIONS_DEFAULT (SANITIZED ? 1000 : 2000)
#define HOARD_PERCENT 40 /* of the bursts between two strikes */
#define STOP_US 20000
#define LIE_IN_WAIT_US 3000 /* for a worker that stays somewhere */
#define RSS_GROWTH MB(8) /* of gpuwmd, over all: the allocator's own */

/* ---- beginning ----------------------------------------------------------- */

/* It outlives every process. */
static void region_make_blocks(struct blocks_storm *s)
{
	struct gpuwm_region_options options = GPUWM_OPTIONS(struct gpuwm_region_options);

	options.name = "blocks";
	options.device = s->storm.d->device;
	options.kind = GPUWM_REGION_BLOCKS;
	options.writers = GPUWM_WRITERS_MANY;
	options.owner = GPUWM_OWNER_UID;
	options.blocks = BLOCKS_COUNT;
	options.block_bytes = BLOCKS_BYTES;
	OK(gpuwm_region_create(s->storm.client, &options, &s->region));
	s->control = control_at(control_mapped(), (struct control_shape){.blocks = BLOCKS_COUNT});
}

static void starting(struct storm *s, unsigned worker)
{
	struct blocks_told *told = &blocks_board_of(s)->told[worker];

	for (uint32_t i = 0; i < BLOCKS_COUNT; i++)
		atomic_store(&told->holds[i], 0);
	atomic_store(&told->at, AT_REST);
	atomic_store(&told->stays, false);
	atomic_store(&told->filling, 0);
	atomic_store(&told->start, s->starts);
}

/* ---- strikes --------------------------------------------------------------- */

/* gpuwmd may have given the slot to the next one meanwhile. */
static void is_let_go(struct blocks_storm *s, unsigned slot, uint32_t generation, int64_t killed_ms)
{
	const struct control_user *user = &s->control.head->users[slot];
	int64_t took_ms;

	cr_assert(EVENTUALLY(BLOCKS_LET_GO_MS,
			     !blocks_has_any(s, slot) || atomic_load(&user->generation) != generation),
		  "a dead process owns or holds blocks after %d ms", BLOCKS_LET_GO_MS);
	took_ms = clock_ms() - killed_ms;
	if (took_ms > s->let_go_ms)
		s->let_go_ms = took_ms;
}

/* Stopped first, so that it is known where it was. */
static void worker_kill(struct blocks_storm *s, unsigned number)
{
	struct blocks_board *board = blocks_board_of(&s->storm);
	struct blocks_told *told = &board->told[number];
	const struct storm_told *actor = &board->storm.told[number];
	const bool had_begun = atomic_load(&actor->state) >= STORM_WORKING;
	unsigned slot, generation;
	int64_t killed_ms;

	cr_assert(kill(s->storm.actors[number].pid, SIGSTOP) == 0);
	s->killed_at[atomic_load(&told->at)]++;
	slot = atomic_load(&actor->slot);
	generation = atomic_load(&s->control.head->users[slot].generation);
	storm_actor_kill(&s->storm, number);
	killed_ms = clock_ms();
	atomic_store(&told->start, 0);
	atomic_store(&told->pid, 0);
	blocks_drop_ended(board, told);
	if (!s->storm.is_away && had_begun)
		is_let_go(s, slot, generation, killed_ms);
	storm_actor_start(&s->storm, number);
}

/* One that stays in this place; in any but AT_REST, if `at` is that. */
static bool find_staying(const struct blocks_storm *s, enum blocks_at at, unsigned first, unsigned *ret)
{
	for (unsigned i = 0; i < BLOCKS_WORKERS; i++) {
		const struct blocks_told *told =
			&blocks_board_of(&s->storm)->told[(first + i) % BLOCKS_WORKERS];
		const enum blocks_at is = (enum blocks_at)atomic_load(&told->at);

		*ret = (first + i) % BLOCKS_WORKERS;
		if (atomic_load(&told->stays) && is != AT_REST && (at == AT_REST || at == is))
			return true;
	}
	return false;
}

/* Any worker; mostly one that stays where something is half done. */
static unsigned choose_worker(struct blocks_storm *s)
{
	const unsigned first = (unsigned)dice_throw(&s->storm.dice, BLOCKS_WORKERS);
	const enum blocks_at at = (enum blocks_at)dice_throw(&s->storm.dice, AT_PLACES);
	const int64_t until = clock_us() + LIE_IN_WAIT_US;
	unsigned found;

	if (dice_percent(&s->storm.dice, 20))
		return first;
	while (clock_us() < until) {
		if (find_staying(s, at, first, &found))
			return found;
	}
	return find_staying(s, AT_REST, first, &found) ? found : first;
}

static void strike(struct storm *storm)
{
	struct blocks_storm *s = (struct blocks_storm *)storm;
	const uint64_t what = dice_throw(&storm->dice, 100);

	if (what < 10)
		storm_gpuwmd_kill(storm);
	else if (what < 30)
		storm_actor_stop(storm, choose_worker(s), STOP_US);
	else
		worker_kill(s, choose_worker(s));
	atomic_store(&blocks_board_of(storm)->hoard, dice_percent(&storm->dice, HOARD_PERCENT));
}

static void check(struct storm *s)
{
	blocks_check((struct blocks_storm *)s);
}

/* ---- the end ------------------------------------------------------------- */

static void tell(const struct blocks_storm *s)
{
	static const char *const places[AT_PLACES] = {"at rest", "reserving",  "reserved", "filling",
						      "filled",  "publishing", "queued",   "holding",
						      "held",    "releasing",  "dropping", "reopening"};
	uint64_t evicted = 0;

	storm_tell(&s->storm);
	fprintf(stderr, "  let go within %jd ms; killed", (intmax_t)s->let_go_ms);
	for (int at = 0; at < AT_PLACES; at++)
		fprintf(stderr, " %s %u%s", places[at], s->killed_at[at], at + 1 < AT_PLACES ? "," : "\n");
	for (unsigned i = 0; i < BLOCKS_WORKERS; i++)
		evicted += blocks_board_of(&s->storm)->told[i].evicted;
	fprintf(stderr, "  %ju published blocks made room\n", (uintmax_t)evicted);
	cr_assert(evicted > 0);
}

static void check_rss(const struct gpuwmd *d, uint64_t before)
{
	const uint64_t rss = rss_of(d->pid);

	cr_assert(SANITIZED || rss < before + RSS_GROWTH, "gpuwmd had %ju bytes, and has %ju",
		  (uintmax_t)before, (uintmax_t)rss);
}

Test(blocks_storm, no_block_is_lost_or_used_twice, .timeout = 3000)
{
	static const struct storm_play play = {
		.actor = blocks_worker_main,
		.operations = blocks_operations,
		.actors = BLOCKS_WORKERS,
		.board_bytes = sizeof(struct blocks_board),
		.check_each = 1000,
		.burst = 60,
		.beyond = 40,
		.starting = starting,
		.strike = strike,
		.check = check,
	};
	struct blocks_storm s = {0};
	uint64_t rss;

	SKIP_UNLESS(backend() != BACKEND_CUDA, "the CPU looks at the memory");
	storm_begin(&s.storm, "blocks_storm", "GPUWM_BLOCKS_STORM_OPERATIONS", OPERATIONS_DEFAULT);
	storm_serve(&s.storm, &(struct kept){0});
	region_make_blocks(&s);
	storm_populate(&s.storm, &play);
	rss = rss_of(s.storm.d->pid);
	storm_run(&s.storm);
	storm_finish(&s.storm);
	blocks_check_end(&s);
	check_rss(s.storm.d, rss);
	OK(gpuwm_region_remove(s.storm.client, "blocks"));
	OK(gpuwm_region_close(s.region));
	tell(&s);
	storm_end(&s.storm);
}
