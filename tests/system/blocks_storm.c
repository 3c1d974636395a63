/* Random operations of eight processes on one region of blocks, amid kills of any of them and of gpuwmd: `make storm` does 100,000 of
 * them, `make check` some. GPUWM_BLOCKS_STORM_OPERATIONS says how many; GPUWM_STORM_SEED repeats what they throw. */
#include "blocks_storm.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

SYSTEM_SUITE(blocks_storm);

#define OPERATIONS_DEFAULT (SANITIZED ? 1000 : 2000)
#define CHECK_EACH 1000
#define PROGRESS_MS 60000
#define BURST 60 /* operations between two kills, at most, but for those while a worker is chosen */
#define HOARD_PERCENT 40 /* of the bursts */
#define BEYOND 40 /* operations that may begin meanwhile */
#define STOP_NS 20000000
#define LIE_IN_WAIT_US 3000 /* for a worker that stays somewhere */
#define RSS_GROWTH MB(8) /* of gpuwmd, over all: the allocator's own */

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
	const char *text = getenv(variable);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

/* ---- beginning ----------------------------------------------------------- */

static void board_make(struct blocks_storm *s)
{
	int fd;

	snprintf(s->path, sizeof s->path, "%s/board", s->d->dir);
	fd = open(s->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	cr_assert(fd >= 0 && ftruncate(fd, sizeof *s->board) == 0);
	s->board = mmap(NULL, sizeof *s->board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert(s->board != MAP_FAILED);
	close(fd);
}

/* It outlives every process. */
static void region_make_blocks(struct blocks_storm *s)
{
	struct gpuwm_region_options options = GPUWM_OPTIONS(struct gpuwm_region_options);

	options.name = "blocks";
	options.device = s->d->device;
	options.kind = GPUWM_REGION_BLOCKS;
	options.writers = GPUWM_WRITERS_MANY;
	options.owner = GPUWM_OWNER_UID;
	options.blocks = BLOCKS_COUNT;
	options.block_bytes = BLOCKS_BYTES;
	OK(gpuwm_region_create(s->client, &options, &s->region));
	blocks_control_find(s);
}

static void worker_begin(struct blocks_storm *s, unsigned number)
{
	struct blocks_told *told = &s->board->told[number];
	char text[16], seed[32];

	for (uint32_t i = 0; i < BLOCKS_COUNT; i++)
		atomic_store(&told->holds[i], 0);
	atomic_store(&told->state, POOL_STARTING);
	atomic_store(&told->at, AT_REST);
	atomic_store(&told->stays, false);
	atomic_store(&told->filling, 0);
	atomic_store(&told->start, ++s->starts);
	snprintf(text, sizeof text, "%u", number);
	snprintf(seed, sizeof seed, "%ju", (uintmax_t)(s->seed * 1000003 + s->starts));
	s->workers[number] = process_start(blocks_worker_main, s->path, text, seed, NULL);
}

static struct blocks_storm *begin(void)
{
	struct blocks_storm *s = calloc(1, sizeof *s);
	uint32_t seed = 0;

	cr_assert_eq(getrandom(&seed, sizeof seed, 0), (ssize_t)sizeof seed);
	s->seed = number_of("GPUWM_STORM_SEED", seed);
	fprintf(stderr, "blocks storm: seed %ju (GPUWM_STORM_SEED repeats it)\n", (uintmax_t)s->seed);
	s->dice.state = s->seed;
	s->d = gpuwmd_start_kept(&(struct kept){0});
	s->client = client_new();
	board_make(s);
	region_make_blocks(s);
	for (unsigned i = 0; i < BLOCKS_WORKERS; i++)
		worker_begin(s, i);
	return s;
}

/* ---- going on ------------------------------------------------------------ */

/* A worker ends by itself only when it has found something wrong, and said so. */
static bool all_run(const struct blocks_storm *s)
{
	for (unsigned i = 0; i < BLOCKS_WORKERS; i++) {
		siginfo_t info = {0};

		waitid(P_PID, (id_t)s->workers[i].pid, &info, WEXITED | WNOHANG | WNOWAIT);
		if (info.si_pid != 0)
			return false;
	}
	return true;
}

#define PROGRESS(s, condition)                                                                                 \
	do {                                                                                                   \
		int64_t deadline_ = clock_ms() + PROGRESS_MS;                                                  \
		while (!(condition)) {                                                                         \
			cr_assert(all_run(s), "a worker found something wrong: seed %ju",                      \
				  (uintmax_t)(s)->seed);                                                       \
			cr_assert(clock_ms() < deadline_, "nobody gets on: %s: seed %ju", #condition,          \
				  (uintmax_t)(s)->seed);                                                       \
			nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);                                \
		}                                                                                              \
	} while (0)

static unsigned parked_count(const struct blocks_storm *s)
{
	unsigned count = 0;

	for (unsigned i = 0; i < BLOCKS_WORKERS; i++)
		count += atomic_load(&s->board->told[i].state) == POOL_PARKED;
	return count;
}

static void gpuwmd_is_back(struct blocks_storm *s)
{
	if (s->is_away)
		kept_wait(s->d);
	s->is_away = false;
}

static void check(struct blocks_storm *s)
{
	gpuwmd_is_back(s);
	atomic_store(&s->board->park, true);
	PROGRESS(s, parked_count(s) == BLOCKS_WORKERS);
	blocks_check(s);
	atomic_store(&s->board->park, false);
	PROGRESS(s, parked_count(s) == 0);
}

/* gpuwmd may have given the slot to the next one meanwhile. */
static void is_let_go(struct blocks_storm *s, unsigned slot, uint32_t generation, int64_t killed_ms)
{
	const struct control_user *user = &s->control.head->users[slot];
	int64_t took_ms;

	cr_assert(EVENTUALLY(BLOCKS_LET_GO_MS,
			     !blocks_has_any(s, slot) || atomic_load(&user->generation) != generation),
		  "a dead process owns or holds blocks after %d ms: seed %ju", BLOCKS_LET_GO_MS,
		  (uintmax_t)s->seed);
	took_ms = clock_ms() - killed_ms;
	if (took_ms > s->let_go_ms)
		s->let_go_ms = took_ms;
}

/* Stopped first, so that it is known where it was. */
static void worker_kill(struct blocks_storm *s, unsigned number)
{
	struct blocks_told *told = &s->board->told[number];
	const bool had_begun = atomic_load(&told->state) >= POOL_WORKING;
	unsigned slot, generation;
	int64_t killed_ms;

	cr_assert(kill(s->workers[number].pid, SIGSTOP) == 0);
	s->killed_at[atomic_load(&told->at)]++;
	s->kills++;
	slot = atomic_load(&told->slot);
	generation = atomic_load(&s->control.head->users[slot].generation);
	process_kill(&s->workers[number], SIGKILL);
	killed_ms = clock_ms();
	atomic_store(&told->start, 0);
	atomic_store(&told->pid, 0);
	blocks_drop_ended(s->board, told);
	if (!s->is_away && had_begun)
		is_let_go(s, slot, generation, killed_ms);
	worker_begin(s, number);
}

/* One that stays in this place; in any but AT_REST, if `at` is that. */
static bool find_staying(const struct blocks_storm *s, enum blocks_at at, unsigned first, unsigned *ret)
{
	for (unsigned i = 0; i < BLOCKS_WORKERS; i++) {
		const struct blocks_told *told = &s->board->told[(first + i) % BLOCKS_WORKERS];
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
	const unsigned first = (unsigned)dice_throw(&s->dice, BLOCKS_WORKERS);
	const enum blocks_at at = (enum blocks_at)dice_throw(&s->dice, AT_PLACES);
	const int64_t until = clock_us() + LIE_IN_WAIT_US;
	unsigned found;

	if (dice_percent(&s->dice, 20))
		return first;
	while (clock_us() < until) {
		if (find_staying(s, at, first, &found))
			return found;
	}
	return find_staying(s, AT_REST, first, &found) ? found : first;
}

/* The others go on while it does nothing. */
static void worker_stop(struct blocks_storm *s, unsigned number)
{
	cr_assert(kill(s->workers[number].pid, SIGSTOP) == 0);
	nanosleep(&(struct timespec){.tv_nsec = (long)dice_throw(&s->dice, STOP_NS)}, NULL);
	cr_assert(kill(s->workers[number].pid, SIGCONT) == 0);
	s->stops++;
}

static void gpuwmd_kill(struct blocks_storm *s)
{
	gpuwmd_is_back(s);
	cr_assert(kill(s->d->pid, SIGKILL) == 0);
	s->gpuwmd_kills++;
	s->is_away = true;
}

static void strike(struct blocks_storm *s)
{
	const uint64_t what = dice_throw(&s->dice, 100);

	if (what < 10)
		gpuwmd_kill(s);
	else if (what < 30)
		worker_stop(s, choose_worker(s));
	else
		worker_kill(s, choose_worker(s));
}

/* As many as that, with kills amid them. */
static void go_on(struct blocks_storm *s, uint64_t until)
{
	uint64_t at = atomic_load(&s->board->operations);

	while (at < until) {
		at += 1 + dice_throw(&s->dice, BURST);
		atomic_store(&s->board->hoard, dice_percent(&s->dice, HOARD_PERCENT));
		at = at < until ? at : until;
		atomic_store(&s->board->granted, until - at < BEYOND ? until : at + BEYOND);
		PROGRESS(s, atomic_load(&s->board->operations) >= at);
		strike(s);
	}
	PROGRESS(s, atomic_load(&s->board->operations) >= until);
}

/* ---- the end ------------------------------------------------------------- */

static void tell_kills(const struct blocks_storm *s)
{
	static const char *const places[AT_PLACES] = {"at rest", "reserving",  "reserved", "filling",
						      "filled",  "publishing", "queued",   "holding",
						      "held",    "releasing",  "dropping", "reopening"};

	fprintf(stderr,
		"blocks storm: seed %ju: %ju operations, %u kills, %u of gpuwmd, %u stops, %u checks; let go "
		"within %jd ms\n  killed",
		(uintmax_t)s->seed, (uintmax_t)s->board->operations, s->kills, s->gpuwmd_kills, s->stops,
		s->checks, (intmax_t)s->let_go_ms);
	for (int at = 0; at < AT_PLACES; at++)
		fprintf(stderr, " %s %u%s", places[at], s->killed_at[at], at + 1 < AT_PLACES ? "," : "\n");
}

static void tell(const struct blocks_storm *s)
{
	static const char *const names[BLOCKS_OPS] = {"reserve", "publish", "abandon", "find",
						      "hold",    "await",   "these",   "release",
						      "drop",    "misuse",  "look",    "reopen"};
	uint64_t evicted = 0;

	tell_kills(s);
	for (int op = 0; op < BLOCKS_OPS; op++) {
		uint64_t done = 0, refused = 0;

		for (unsigned i = 0; i < BLOCKS_WORKERS; i++) {
			done += s->board->told[i].done[op];
			refused += s->board->told[i].refused[op];
		}
		fprintf(stderr, "  %-9s %7ju done, %7ju refused\n", names[op], (uintmax_t)done,
			(uintmax_t)refused);
	}
	for (unsigned i = 0; i < BLOCKS_WORKERS; i++)
		evicted += s->board->told[i].evicted;
	fprintf(stderr, "  %ju published blocks made room\n", (uintmax_t)evicted);
	cr_assert(evicted > 0);
}

static void end(struct blocks_storm *s, uint64_t rss)
{
	gpuwmd_is_back(s);
	atomic_store(&s->board->finish, true);
	for (unsigned i = 0; i < BLOCKS_WORKERS; i++)
		process_finish(&s->workers[i]);
	blocks_check_end(s);
	cr_assert(SANITIZED || rss_of(s->d->pid) < rss + RSS_GROWTH, "gpuwmd had %ju bytes, and has %ju",
		  (uintmax_t)rss, (uintmax_t)rss_of(s->d->pid));
	OK(gpuwm_region_remove(s->client, "blocks"));
	OK(gpuwm_region_close(s->region));
	gpuwm_close(s->client);
	tell(s);
	munmap(s->board, sizeof *s->board);
	gpuwmd_stop_empty(s->d);
	free(s);
}

Test(blocks_storm, no_block_is_lost_or_used_twice, .timeout = 3000)
{
	const uint64_t operations = number_of("GPUWM_BLOCKS_STORM_OPERATIONS", OPERATIONS_DEFAULT);
	struct blocks_storm *s;
	uint64_t rss;

	SKIP_UNLESS(backend() != BACKEND_CUDA, "the CPU looks at the memory");
	s = begin();
	rss = rss_of(s->d->pid);
	for (uint64_t at = CHECK_EACH; at <= operations; at += CHECK_EACH) {
		go_on(s, at);
		check(s);
	}
	end(s, rss);
}
