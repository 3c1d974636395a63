/* Processes want one scratch memory, wait for it in line, keep it too long, and are killed, as gpuwmd is. The memory itself says who has
 * it: whoever gets it finds nobody that lives there, and stays alone until it gives it back. */
#include "storm.h"

#include <gpuwm/scratch.h>

#include <stdio.h>
#include <unistd.h>

STORM_SUITE(scratch_storm);

#define SCRATCH_WORKERS 5
#define BYTES KB(64)
#define WORDS (BYTES / 8)
#define STRIKES (SANITIZED ? 60 : 140) /* 2.5 s on an idle machine */
#define WAIT_MS 60000 /* for a turn, at the end */
#define GIVE_BACK_MS 30000

/* ---- a worker ---------------------------------------------------------------- */

struct worker {
	struct storm_actor actor;
	struct gpuwm_region *region;
	uint64_t *words; /* the first one is the pid of who has it */
	bool clear; /* the region clears it for each new holder */
};

static uint64_t first_word(const struct worker *w)
{
	return atomic_load((_Atomic uint64_t *)w->words);
}

static void mark(const struct worker *w, uint64_t pid)
{
	atomic_store((_Atomic uint64_t *)w->words, pid);
}

/* The memory is this process's alone: all of it keeps what it writes. */
static void use(struct worker *w)
{
	const uint64_t me = (uint64_t)getpid(), salt = dice_throw(&w->actor.dice, UINT64_MAX),
		       last = first_word(w);

	CHILD_ASSERT(last == 0 || (!w->clear && !process_runs((pid_t)last)));
	for (unsigned i = 1; last == 0 && i < WORDS; i++)
		CHILD_ASSERT(w->words[i] == 0); /* cleared for this holder, or given back clean */
	mark(w, me);
	for (unsigned i = 1; i < WORDS; i++)
		w->words[i] = salt + i;
	pause_us(dice_throw(&w->actor.dice, dice_percent(&w->actor.dice, 5) ? 20000 : 500));
	for (unsigned i = 1; i < WORDS; i++)
		CHILD_ASSERT(w->words[i] == salt + i);
	CHILD_ASSERT(first_word(w) == me);
	memset((void *)(w->words + 1), 0, BYTES - sizeof(w->words[0]));
	/* Last: whoever is killed before it has left a mark, and not an unclean memory without one. */
	mark(w, 0);
}

static void give_back(struct worker *w)
{
	const int64_t deadline = clock_ms() + GIVE_BACK_MS;

	while (MAY_REFUSE(gpuwm_scratch_release(w->region), STORM_AWAY) < 0) {
		CHILD_ASSERT(clock_ms() < deadline);
		pause_us(500);
	}
	CHILD_ASSERT(gpuwm_scratch_release(w->region) == -EALREADY);
}

/* It takes turns until it is killed. */
static _Noreturn void take_turns(int argc, char **argv, bool clear)
{
	static struct worker w;
	uint64_t turns = 0;

	w.clear = clear;
	storm_actor_begin(&w.actor, argc, argv, sizeof(struct storm_board));
	w.region = storm_region_open(&w.actor, "scratch", GPUWM_REGION_WRITE);
	w.words = gpuwm_region_address(w.region);
	for (;;) {
		const int64_t wait_ms =
			dice_percent(&w.actor.dice, 30) ? (int64_t)dice_throw(&w.actor.dice, 5) : WAIT_MS;

		if (MAY_REFUSE(gpuwm_scratch_acquire(w.region, wait_ms), STORM_AWAY) < 0) {
			w.actor.told->refused[0]++;
			continue;
		}
		CHILD_ASSERT(gpuwm_scratch_acquire(w.region, 0) == -EALREADY);
		use(&w);
		give_back(&w);
		w.actor.told->done[0]++;
		atomic_fetch_add(&w.actor.board->operations, 1);
		if (turns++ == 0)
			child_say('t');
	}
}

static int worker(int argc, char **argv)
{
	take_turns(argc, argv, false);
}

/* Of a region that clears. */
static int worker_of_clear(int argc, char **argv)
{
	take_turns(argc, argv, true);
}

/* ---- the test ---------------------------------------------------------------- */

struct scratch_storm {
	struct storm storm;
	struct gpuwm_region *region;
	unsigned holder_kills;
};

static void worker_kill(struct scratch_storm *s)
{
	const unsigned number = (unsigned)dice_throw(&s->storm.dice, SCRATCH_WORKERS);
	const uint64_t holder = atomic_load((_Atomic uint64_t *)gpuwm_region_address(s->region));

	s->holder_kills += holder == (uint64_t)s->storm.actors[number].pid;
	storm_actor_kill(&s->storm, number);
	storm_actor_start(&s->storm, number);
}

static void strike(struct scratch_storm *s)
{
	struct dice *dice = &s->storm.dice;

	pause_us(dice_throw(dice, 20000));
	if (dice_percent(dice, 10))
		storm_gpuwmd_kill(&s->storm);
	else if (dice_percent(dice, 20)) /* a holder that does not give back, maybe */
		storm_actor_stop(&s->storm, (unsigned)dice_throw(dice, SCRATCH_WORKERS), 50000);
	else
		worker_kill(s);
}

static void region_make_scratch(struct scratch_storm *s, bool clear)
{
	struct gpuwm_region_options options = GPUWM_OPTIONS(struct gpuwm_region_options);

	options.name = "scratch";
	options.device = s->storm.d->device;
	options.kind = GPUWM_REGION_SCRATCH;
	options.writers = GPUWM_WRITERS_MANY;
	options.owner = GPUWM_OWNER_UID;
	options.bytes = BYTES;
	options.clear = clear;
	OK(gpuwm_region_create(s->storm.client, &options, &s->region));
}

/* Each worker that is there now gets its turn, and then the test does. */
static void end(struct scratch_storm *s)
{
	storm_gpuwmd_is_back(&s->storm);
	for (unsigned i = 0; i < SCRATCH_WORKERS; i++)
		process_expect(&s->storm.actors[i], 't');
	OK(gpuwm_scratch_acquire(s->region, WAIT_MS));
	for (unsigned i = 0; i < SCRATCH_WORKERS; i++)
		storm_actor_kill(&s->storm, i);
	OK(gpuwm_scratch_release(s->region));
	cr_assert(EVENTUALLY(SOON_MS, region_is(s->storm.d, "scratch", "ready", 1)));
	OK(gpuwm_scratch_acquire(s->region, 0));
	OK(gpuwm_scratch_release(s->region));
	OK(gpuwm_region_remove(s->storm.client, "scratch"));
	OK(gpuwm_region_close(s->region));
	storm_tell(&s->storm);
	fprintf(stderr, "  %u kills were of holders\n", s->holder_kills);
	storm_end(&s->storm);
}

static void storm(bool clear)
{
	static const struct storm_operation operations[] = {{.name = "turn"}, {0}};
	const struct storm_play play = {
		.operations = operations,
		.actor = clear ? worker_of_clear : worker,
		.actors = SCRATCH_WORKERS,
		.board_bytes = sizeof(struct storm_board),
	};
	struct scratch_storm s = {0};

	SKIP_UNLESS(backend() != BACKEND_CUDA, "the CPU looks at the memory");
	storm_begin(&s.storm, "scratch_storm", "GPUWM_STORM_KILLS", STRIKES);
	storm_serve(&s.storm, &(struct kept){0});
	region_make_scratch(&s, clear);
	storm_populate(&s.storm, &play);
	for (uint64_t i = 0; i < s.storm.length; i++)
		strike(&s);
	end(&s);
}

Test(scratch_storm, has_one_holder_at_a_time)
{
	storm(false);
}

Test(scratch_storm, is_cleared_for_each_holder)
{
	storm(true);
}
