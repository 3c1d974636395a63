/* Random operations of eight processes on one pool, amid kills of any of them and of gpuwmd: `make storm` does 100,000 of them,
 * `make check` some. GPUWM_POOL_STORM_OPERATIONS says how many; GPUWM_STORM_SEED repeats what they throw. */
#include "pool_storm.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

SYSTEM_SUITE(pool_storm);

#define OPERATIONS_DEFAULT (SANITIZED ? 1000 : 2000)
#define CHECK_EACH 1000
#define PROGRESS_MS 60000
#define BURST 150 /* operations between two kills, at most */

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
	const char *text = getenv(variable);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

/* ---- beginning ----------------------------------------------------------- */

static void board_make(struct pool_storm *s)
{
	int fd;

	snprintf(s->path, sizeof s->path, "%s/board", s->d->dir);
	fd = open(s->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	cr_assert(fd >= 0 && ftruncate(fd, sizeof *s->board) == 0);
	s->board = mmap(NULL, sizeof *s->board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert(s->board != MAP_FAILED);
	close(fd);
}

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
	OK(gpuwm_region_create(s->client, &options, &region));
	OK(gpuwm_region_close(region));
	options.name = "pool";
	options.kind = GPUWM_REGION_POOL;
	options.device = s->d->device;
	options.items = options.item_bytes = 0;
	options.bytes = POOL_BYTES;
	options.chunks = POOL_CHUNKS;
	options.ttl_ms = POOL_TTL_MS;
	OK(gpuwm_region_create(s->client, &options, &region));
	OK(gpuwm_region_close(region));
	OK(gpuwm_region_open(s->client, "pool", 0, &s->pool));
}

static void worker_begin(struct pool_storm *s, unsigned number)
{
	struct pool_told *told = &s->board->told[number];
	char text[16], seed[32];

	atomic_store(&told->state, POOL_STARTING);
	atomic_store(&told->owns, false);
	told->filling = told->reading = 0;
	snprintf(text, sizeof text, "%u", number);
	snprintf(seed, sizeof seed, "%ju", (uintmax_t)(s->seed * 1000003 + s->starts++));
	s->workers[number] = process_start(pool_worker_main, s->path, text, seed, NULL);
}

static struct pool_storm *begin(void)
{
	struct pool_storm *s = calloc(1, sizeof *s);
	uint32_t seed = 0;

	cr_assert_eq(getrandom(&seed, sizeof seed, 0), (ssize_t)sizeof seed);
	s->seed = number_of("GPUWM_STORM_SEED", seed);
	fprintf(stderr, "pool storm: seed %ju (GPUWM_STORM_SEED repeats it)\n", (uintmax_t)s->seed);
	s->dice.state = s->seed;
	s->d = gpuwmd_start_kept(&(struct kept){0});
	s->client = client_new();
	board_make(s);
	regions_make(s);
	for (unsigned i = 0; i < POOL_WORKERS; i++)
		worker_begin(s, i);
	return s;
}

/* ---- going on ------------------------------------------------------------ */

/* A worker ends by itself only when it has found something wrong, and said so. */
static bool all_run(const struct pool_storm *s)
{
	for (unsigned i = 0; i < POOL_WORKERS; i++) {
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

static bool all_parked(const struct pool_storm *s)
{
	for (unsigned i = 0; i < POOL_WORKERS; i++) {
		if (atomic_load(&s->board->told[i].state) != POOL_PARKED)
			return false;
	}
	return true;
}

static bool any_parked(const struct pool_storm *s)
{
	for (unsigned i = 0; i < POOL_WORKERS; i++) {
		if (atomic_load(&s->board->told[i].state) == POOL_PARKED)
			return true;
	}
	return false;
}

static bool all_probed(const struct pool_storm *s)
{
	for (unsigned i = 0; i < POOL_WORKERS; i++) {
		if (!atomic_load(&s->board->told[i].probed))
			return false;
	}
	return true;
}

static void gpuwmd_is_back(struct pool_storm *s)
{
	if (s->is_away)
		kept_wait(s->d);
	s->is_away = false;
}

static void check(struct pool_storm *s)
{
	gpuwmd_is_back(s);
	atomic_store(&s->board->park, true);
	PROGRESS(s, all_parked(s));
	pool_check(s);
	atomic_store(&s->board->probe, true);
	PROGRESS(s, all_probed(s));
	atomic_store(&s->board->probe, false);
	atomic_store(&s->board->park, false);
	PROGRESS(s, !any_parked(s));
}

static void worker_kill(struct pool_storm *s)
{
	const unsigned number = (unsigned)dice_throw(&s->dice, POOL_WORKERS);

	s->kills++;
	s->owner_kills += atomic_load(&s->board->told[number].owns);
	process_kill(&s->workers[number], SIGKILL);
	worker_begin(s, number);
}

static void gpuwmd_kill(struct pool_storm *s)
{
	gpuwmd_is_back(s);
	cr_assert(kill(s->d->pid, SIGKILL) == 0);
	s->gpuwmd_kills++;
	s->is_away = true;
}

static void strike(struct pool_storm *s)
{
	nanosleep(&(struct timespec){.tv_nsec = (long)dice_throw(&s->dice, 1000000)}, NULL);
	if (dice_percent(&s->dice, 10))
		gpuwmd_kill(s);
	else
		worker_kill(s);
}

/* As many as that, with kills amid them. */
static void go_on(struct pool_storm *s, uint64_t until)
{
	uint64_t at = atomic_load(&s->board->operations);

	while (at < until) {
		const uint64_t burst = 1 + dice_throw(&s->dice, BURST);

		at = until - at < burst ? until : at + burst;
		atomic_store(&s->board->granted, at);
		PROGRESS(s, atomic_load(&s->board->operations) + dice_throw(&s->dice, 20) >= at);
		strike(s);
	}
	PROGRESS(s, atomic_load(&s->board->operations) >= until);
}

/* ---- the end ------------------------------------------------------------- */

/* All is one free piece. */
static void check_empty(struct pool_storm *s)
{
	struct gpuwm_pool_figures figures;
	struct gpuwm_chunk *chunk;

	OK(gpuwm_region_close(s->pool));
	OK(gpuwm_region_open(s->client, "pool", GPUWM_REGION_OWN, &s->pool));
	OK(gpuwm_chunk_alloc(s->pool, POOL_BYTES, SOON_MS, &chunk));
	OK(gpuwm_chunk_discard(chunk));
	OK(gpuwm_pool_figures(s->pool, &figures));
	cr_assert(figures.used == 0 && figures.chunks == 0 && figures.waiting == 0);
	cr_assert(figures.free == POOL_BYTES && figures.largest_free == POOL_BYTES);
	OK(gpuwm_region_close(s->pool));
}

static void tell(const struct pool_storm *s)
{
	static const char *const names[POOL_OPS] = {"alloc",  "offer", "discard", "withdraw", "await",  "take",
						    "replay", "forge", "get",     "finish",   "reopen", "look"};

	fprintf(stderr,
		"pool storm: seed %ju: %ju operations, %u kills (%u of owners), %u of gpuwmd, %u checks\n",
		(uintmax_t)s->seed, (uintmax_t)s->board->operations, s->kills, s->owner_kills, s->gpuwmd_kills,
		s->checks);
	for (int op = 0; op < POOL_OPS; op++) {
		uint64_t done = 0, refused = 0;

		for (unsigned i = 0; i < POOL_WORKERS; i++) {
			done += s->board->told[i].done[op];
			refused += s->board->told[i].refused[op];
		}
		fprintf(stderr, "  %-9s %7ju done, %7ju refused\n", names[op], (uintmax_t)done,
			(uintmax_t)refused);
	}
}

static void end(struct pool_storm *s)
{
	gpuwmd_is_back(s);
	atomic_store(&s->board->finish, true);
	for (unsigned i = 0; i < POOL_WORKERS; i++)
		process_finish(&s->workers[i]);
	check_empty(s);
	OK(gpuwm_region_remove(s->client, "pool"));
	OK(gpuwm_region_remove(s->client, "queue"));
	gpuwm_close(s->client);
	tell(s);
	munmap(s->board, sizeof *s->board);
	gpuwmd_stop_empty(s->d);
	free(s);
}

Test(pool_storm, no_chunk_is_lost_or_used_twice, .timeout = 3000)
{
	const uint64_t operations = number_of("GPUWM_POOL_STORM_OPERATIONS", OPERATIONS_DEFAULT);
	struct pool_storm *s;

	SKIP_UNLESS(backend() != BACKEND_CUDA, "the CPU looks at the memory");
	s = begin();
	for (uint64_t at = CHECK_EACH; at <= operations; at += CHECK_EACH) {
		go_on(s, at);
		check(s);
	}
	end(s);
}
