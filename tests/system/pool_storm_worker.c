/* A process in the storm over a pool. */
#include "pool_storm.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define START_MS 30000
#define LOOK_AGAIN_NS 50000

typedef int op_fn(struct pool_worker *w);

static void pause_ns(long ns)
{
	nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

bool pool_code_is_among(int code, const int *codes)
{
	while (*codes && *codes != -code)
		codes++;
	return code >= 0 || *codes;
}

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

/* ---- opening ------------------------------------------------------------- */

/* What goes on while gpuwmd is away, or has not noticed who died. */
#define AWAY EBUSY, EDQUOT, ECONNREFUSED, ETIMEDOUT

static void connect_again(struct pool_worker *w)
{
	int64_t deadline = clock_ms() + START_MS;

	while (gpuwm_connect(NULL, &w->client) < 0) {
		CHILD_ASSERT(clock_ms() < deadline);
		pause_ns(1000000);
	}
}

static struct gpuwm_region *open_again(struct pool_worker *w, const char *name, unsigned flags)
{
	int64_t deadline = clock_ms() + START_MS;
	struct gpuwm_region *region = NULL;

	while (MAY_REFUSE(gpuwm_region_open(w->client, name, flags, &region), AWAY) < 0) {
		CHILD_ASSERT(clock_ms() < deadline);
		flags &= ~(unsigned)GPUWM_REGION_OWN;
		pause_ns(1000000);
	}
	return region;
}

static void open_pool(struct pool_worker *w)
{
	struct gpuwm_region_info info;

	w->pool = open_again(w, "pool", dice_percent(&w->dice, 70) ? GPUWM_REGION_OWN : 0);
	gpuwm_region_info(w->pool, &info);
	CHILD_ASSERT(info.bytes == POOL_BYTES && info.chunks == POOL_CHUNKS);
	w->owns = info.owns;
	atomic_store(&w->told->slot, info.slot);
	atomic_store(&w->told->owns, info.owns);
}

static void drop_all(struct pool_worker *w)
{
	while (w->reading_count > 0)
		CHILD_ASSERT(gpuwm_chunk_finish(w->reading[--w->reading_count].chunk) == 0);
	while (w->filling_count > 0)
		CHILD_ASSERT(gpuwm_chunk_discard(w->filling[--w->filling_count].chunk) == 0);
	pool_stream_wait(w->stream);
}

static int reopen(struct pool_worker *w)
{
	if (w->owns && !dice_percent(&w->dice, 20))
		return -EBUSY;
	drop_all(w);
	atomic_store(&w->told->owns, false);
	CHILD_ASSERT(gpuwm_region_close(w->pool) == 0);
	w->sent_count = 0;
	open_pool(w);
	return 0;
}

/* ---- what to do ---------------------------------------------------------- */

static const struct {
	op_fn *fn;
	unsigned owners, readers; /* how often, among those of an owner or of another one */
} ops[POOL_OPS] = {
	[POOL_ALLOC] = {pool_op_alloc, 30, 0},    [POOL_OFFER] = {pool_op_offer, 25, 0},
	[POOL_DISCARD] = {pool_op_discard, 3, 0}, [POOL_WITHDRAW] = {pool_op_withdraw, 4, 0},
	[POOL_AWAIT] = {pool_op_await, 4, 2},     [POOL_TAKE] = {pool_op_take, 10, 40},
	[POOL_REPLAY] = {pool_op_replay, 2, 6},   [POOL_FORGE] = {pool_op_forge, 1, 3},
	[POOL_GET] = {pool_op_get, 4, 12},        [POOL_FINISH] = {pool_op_finish, 15, 34},
	[POOL_REOPEN] = {reopen, 1, 1},           [POOL_LOOK] = {pool_op_look, 1, 2},
};

static enum pool_op choose(struct pool_worker *w)
{
	unsigned all = 0, throw;
	int op = 0;

	for (int i = 0; i < POOL_OPS; i++)
		all += w->owns ? ops[i].owners : ops[i].readers;
	throw = (unsigned)dice_throw(&w->dice, all);
	for (;; op++) {
		const unsigned share = w->owns ? ops[op].owners : ops[op].readers;

		if (throw < share)
			return (enum pool_op)op;
		throw -= share;
	}
}

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

/* What is free by the control memory is free by the owner's own account. */
static void probe(struct pool_worker *w)
{
	struct gpuwm_pool_figures figures;
	struct gpuwm_chunk *chunk;

	CHILD_ASSERT(gpuwm_pool_figures(w->pool, &figures) == 0);
	if (w->owns && figures.largest_free > 0 && figures.chunks < POOL_CHUNKS) {
		CHILD_ASSERT(gpuwm_chunk_alloc(w->pool, figures.largest_free, 0, &chunk) == 0);
		CHILD_ASSERT(gpuwm_chunk_discard(chunk) == 0);
	}
	atomic_store(&w->told->probed, true);
}

static void parked(struct pool_worker *w)
{
	pool_stream_wait(w->stream);
	tell(w);
	atomic_store(&w->told->probed, false);
	atomic_store(&w->told->state, POOL_PARKED);
	while (atomic_load(&w->board->park)) {
		if (atomic_load(&w->board->probe) && !atomic_load(&w->told->probed))
			probe(w);
		pause_ns(LOOK_AGAIN_NS);
	}
	atomic_store(&w->told->state, POOL_WORKING);
}

/* Until there is something to do. */
static void rest(struct pool_worker *w)
{
	if (atomic_load(&w->board->park))
		parked(w);
	pause_ns(LOOK_AGAIN_NS);
}

/* Whether another operation may begin: it is counted. */
static bool is_granted(struct pool_board *board)
{
	uint64_t count = atomic_load(&board->operations);

	do {
		if (count >= atomic_load(&board->granted) || atomic_load(&board->park))
			return false;
	} while (!atomic_compare_exchange_weak(&board->operations, &count, count + 1));
	return true;
}

/* There was nothing to do it with: it does not count. */
static void tell_done(struct pool_worker *w, enum pool_op op, int code)
{
	if (code == -EBUSY) {
		atomic_fetch_sub(&w->board->operations, 1);
		sched_yield();
	} else if (code < 0) {
		w->told->refused[op]++;
	} else {
		w->told->done[op]++;
	}
}

static void work(struct pool_worker *w)
{
	while (!atomic_load(&w->board->finish)) {
		enum pool_op op;

		if (!is_granted(w->board)) {
			rest(w);
			continue;
		}
		op = choose(w);
		tell_done(w, op, ops[op].fn(w));
	}
}

/* It withdraws nothing: the tokens' time to live has to be enough. */
static void finish(struct pool_worker *w)
{
	struct gpuwm_chunk *chunk;

	drop_all(w);
	tell(w);
	if (w->owns) {
		CHILD_ASSERT(gpuwm_chunk_alloc(w->pool, POOL_BYTES, START_MS, &chunk) == 0);
		CHILD_ASSERT(gpuwm_chunk_discard(chunk) == 0);
	}
	CHILD_ASSERT(gpuwm_region_close(w->pool) == 0);
	CHILD_ASSERT(gpuwm_region_close(w->queue) == 0);
	gpuwm_close(w->client);
	atomic_store(&w->told->state, POOL_ENDED);
}

static struct pool_board *board_map(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *board = mmap(NULL, sizeof(struct pool_board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHILD_ASSERT(board != MAP_FAILED);
	close(fd);
	return board;
}

int pool_worker_main(int argc, char **argv)
{
	static struct pool_worker w;

	CHILD_ASSERT(argc == 3);
	w.board = board_map(argv[0]);
	w.number = (unsigned)atoi(argv[1]);
	w.told = &w.board->told[w.number];
	w.dice.state = strtoull(argv[2], NULL, 10);
	w.stream = pool_stream_new();
	connect_again(&w);
	open_pool(&w);
	w.queue = open_again(&w, "queue", GPUWM_REGION_WRITE);
	atomic_store(&w.told->state, POOL_WORKING);
	work(&w);
	finish(&w);
	return 0;
}
