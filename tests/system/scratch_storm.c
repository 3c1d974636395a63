/* Processes want one scratch memory, wait for it in line, keep it too long, and are killed, as gpuwmd is. The memory itself says who has
 * it: whoever gets it finds nobody that lives there, and stays alone until it gives it back. */
#include "region_raw.h"
#include "storm.h"

#include <gpuwm/scratch.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

SYSTEM_SUITE(scratch_storm);

#define SCRATCH_WORKERS 5
#define BYTES KB(64)
#define WORDS (BYTES / 8)
#define STORM_MS 2500
#define WAIT_MS 60000 /* for a turn, at the end */
#define START_MS 30000

/* ---- a worker ---------------------------------------------------------------- */

struct worker {
	struct gpuwm_client *client;
	struct gpuwm_region *region;
	struct dice dice;
	uint64_t *words; /* the first one is the pid of who has it */
	bool clear; /* the region clears it for each new holder */
};

static void pause_us(uint64_t us)
{
	nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
}

/* A process that is a zombie has exited: gpuwmd may have handed on what it held. */
static bool runs(uint64_t pid)
{
	char path[32], state = 'X';
	FILE *file;

	snprintf(path, sizeof path, "/proc/%u/stat", (unsigned)pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = 'X';
	fclose(file);
	return state != 'Z' && state != 'X';
}

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
	const uint64_t me = (uint64_t)getpid(), salt = dice_throw(&w->dice, UINT64_MAX), last = first_word(w);

	CHILD_ASSERT(last == 0 || (!w->clear && !runs(last)));
	for (unsigned i = 1; last == 0 && i < WORDS; i++)
		CHILD_ASSERT(w->words[i] == 0); /* cleared for this holder, or given back clean */
	mark(w, me);
	for (unsigned i = 1; i < WORDS; i++)
		w->words[i] = salt + i;
	pause_us(dice_throw(&w->dice, dice_percent(&w->dice, 5) ? 20000 : 500));
	for (unsigned i = 1; i < WORDS; i++)
		CHILD_ASSERT(w->words[i] == salt + i);
	CHILD_ASSERT(first_word(w) == me);
	memset((void *)(w->words + 1), 0, BYTES - sizeof(w->words[0]));
	mark(w,
	     0); /* last: whoever is killed before it has left a mark, and not an unclean memory without one */
}

/* What goes on while gpuwmd is away. */
static bool is_away(int code)
{
	return code == -ECONNREFUSED || code == -ETIMEDOUT || code == -EBUSY || code == -EDQUOT;
}

static void give_back(struct worker *w)
{
	const int64_t deadline = clock_ms() + START_MS;
	int r;

	while ((r = gpuwm_scratch_release(w->region)) < 0) {
		CHILD_ASSERT(is_away(r) && clock_ms() < deadline);
		pause_us(500);
	}
	CHILD_ASSERT(gpuwm_scratch_release(w->region) == -EALREADY);
}

static void open_scratch(struct worker *w)
{
	const int64_t deadline = clock_ms() + START_MS;
	int r;

	while (gpuwm_connect(NULL, &w->client) < 0) {
		CHILD_ASSERT(clock_ms() < deadline);
		pause_us(1000);
	}
	while ((r = gpuwm_region_open(w->client, "scratch", GPUWM_REGION_WRITE, &w->region)) < 0) {
		CHILD_ASSERT(is_away(r) && clock_ms() < deadline);
		pause_us(1000);
	}
	w->words = gpuwm_region_address(w->region);
}

/* argv: a seed, "clear" or "". It takes turns until it is killed. */
static int worker(int argc, char **argv)
{
	static struct worker w;
	uint64_t turns = 0;

	CHILD_ASSERT(argc == 2);
	w.dice.state = strtoull(argv[0], NULL, 10);
	w.clear = argv[1][0] != 0;
	open_scratch(&w);
	for (;;) {
		const int64_t wait_ms = dice_percent(&w.dice, 30) ? (int64_t)dice_throw(&w.dice, 5) : WAIT_MS;
		int r = gpuwm_scratch_acquire(w.region, wait_ms);

		CHILD_ASSERT(r == 0 || is_away(r));
		if (r < 0)
			continue;
		CHILD_ASSERT(gpuwm_scratch_acquire(w.region, 0) == -EALREADY);
		use(&w);
		give_back(&w);
		if (turns++ == 0)
			child_say('t');
	}
}

/* ---- the test ---------------------------------------------------------------- */

struct scratch_storm {
	struct gpuwmd *d;
	struct gpuwm_client *client;
	struct gpuwm_region *region;
	struct dice dice;
	uint64_t seed, starts;
	struct process workers[SCRATCH_WORKERS];
	unsigned kills, holder_kills, gpuwmd_kills;
	bool is_away, clear;
};

static void worker_begin(struct scratch_storm *s, unsigned number)
{
	char seed[32];

	snprintf(seed, sizeof seed, "%ju", (uintmax_t)(s->seed * 1000003 + s->starts++));
	s->workers[number] = process_start(worker, seed, s->clear ? "clear" : "", NULL);
}

static void gpuwmd_is_back(struct scratch_storm *s)
{
	if (s->is_away)
		kept_wait(s->d);
	s->is_away = false;
}

static void worker_kill(struct scratch_storm *s)
{
	const unsigned number = (unsigned)dice_throw(&s->dice, SCRATCH_WORKERS);
	const uint64_t holder = atomic_load((_Atomic uint64_t *)gpuwm_region_address(s->region));

	s->kills++;
	s->holder_kills += holder == (uint64_t)s->workers[number].pid;
	process_kill(&s->workers[number], SIGKILL);
	worker_begin(s, number);
}

static void strike(struct scratch_storm *s)
{
	const unsigned number = (unsigned)dice_throw(&s->dice, SCRATCH_WORKERS);

	pause_us(dice_throw(&s->dice, 20000));
	if (dice_percent(&s->dice, 10)) {
		gpuwmd_is_back(s);
		cr_assert(kill(s->d->pid, SIGKILL) == 0);
		s->gpuwmd_kills++;
		s->is_away = true;
	} else if (dice_percent(&s->dice, 20)) {
		kill(s->workers[number].pid, SIGSTOP); /* a holder that does not give back, maybe */
		pause_us(dice_throw(&s->dice, 50000));
		kill(s->workers[number].pid, SIGCONT);
	} else {
		worker_kill(s);
	}
}

static void begin(struct scratch_storm *s)
{
	struct gpuwm_region_options options = GPUWM_OPTIONS(struct gpuwm_region_options);

	s->d = gpuwmd_start_kept(&(struct kept){0});
	s->client = client_new();
	options.name = "scratch";
	options.device = s->d->device;
	options.kind = GPUWM_REGION_SCRATCH;
	options.writers = GPUWM_WRITERS_MANY;
	options.owner = GPUWM_OWNER_UID;
	options.bytes = BYTES;
	options.clear = s->clear;
	OK(gpuwm_region_create(s->client, &options, &s->region));
	for (unsigned i = 0; i < SCRATCH_WORKERS; i++)
		worker_begin(s, i);
}

/* Each worker that is there now gets its turn, and then the test does. */
static void end(struct scratch_storm *s)
{
	gpuwmd_is_back(s);
	for (unsigned i = 0; i < SCRATCH_WORKERS; i++)
		process_expect(&s->workers[i], 't');
	OK(gpuwm_scratch_acquire(s->region, WAIT_MS));
	for (unsigned i = 0; i < SCRATCH_WORKERS; i++)
		process_kill(&s->workers[i], SIGKILL);
	OK(gpuwm_scratch_release(s->region));
	cr_assert(EVENTUALLY(SOON_MS, region_is(s->d, "scratch", "ready", 1)));
	OK(gpuwm_scratch_acquire(s->region, 0));
	OK(gpuwm_scratch_release(s->region));
	OK(gpuwm_region_remove(s->client, "scratch"));
	OK(gpuwm_region_close(s->region));
	gpuwm_close(s->client);
	fprintf(stderr, "scratch storm: seed %ju: %u kills (%u of holders), %u of gpuwmd\n", (uintmax_t)s->seed,
		s->kills, s->holder_kills, s->gpuwmd_kills);
	gpuwmd_stop_empty(s->d);
}

static void storm(bool clear)
{
	struct scratch_storm s = {.clear = clear};
	uint32_t seed = 0;
	int64_t until;

	SKIP_UNLESS(backend() != BACKEND_CUDA, "the CPU looks at the memory");
	cr_assert_eq(getrandom(&seed, sizeof seed, 0), (ssize_t)sizeof seed);
	s.seed = getenv("GPUWM_STORM_SEED") ? strtoull(getenv("GPUWM_STORM_SEED"), NULL, 10) : seed;
	s.dice.state = s.seed;
	fprintf(stderr, "scratch storm: seed %ju (GPUWM_STORM_SEED repeats it)\n", (uintmax_t)s.seed);
	begin(&s);
	for (until = clock_ms() + STORM_MS; clock_ms() < until;)
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
