/* A process in the storm over blocks. */
#include "blocks_storm.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define START_MS 30000
#define LOOK_AGAIN_NS 50000
#define STAY_PERCENT 10
#define STAY_NS 2000000

typedef int op_fn(struct blocks_worker *w);

static void pause_ns(long ns)
{
	nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

void blocks_at(struct blocks_worker *w, enum blocks_at at)
{
	atomic_store(&w->told->at, at);
	if (!dice_percent(&w->dice, STAY_PERCENT))
		return;
	atomic_store(&w->told->stays, true);
	pause_ns((long)dice_throw(&w->dice, STAY_NS));
	atomic_store(&w->told->stays, false);
}

void blocks_settle(struct blocks_worker *w)
{
	pool_stream_wait(w->stream);
	while (w->queued_count > 0)
		blocks_published(w, &w->queued[--w->queued_count]);
	while (w->read_count > 0) {
		const struct blocks_copy *copy = &w->reads[--w->read_count];

		CHILD_ASSERT(blocks_bytes_are(copy->bytes, &copy->use, NULL));
	}
}

/* ---- opening ------------------------------------------------------------- */

/* What goes on while gpuwmd is away, or has not noticed who died. */
#define AWAY EBUSY, EDQUOT, ECONNREFUSED, ETIMEDOUT

static void connect_again(struct blocks_worker *w)
{
	int64_t deadline = clock_ms() + START_MS;

	while (gpuwm_connect(NULL, &w->client) < 0) {
		CHILD_ASSERT(clock_ms() < deadline);
		pause_ns(1000000);
	}
}

static void open_region(struct blocks_worker *w)
{
	int64_t deadline = clock_ms() + START_MS;
	struct gpuwm_region_info info;

	while (MAY_REFUSE(gpuwm_region_open(w->client, "blocks", GPUWM_REGION_WRITE, &w->region), AWAY) < 0) {
		CHILD_ASSERT(clock_ms() < deadline);
		pause_ns(1000000);
	}
	gpuwm_region_info(w->region, &info);
	CHILD_ASSERT(info.kind == GPUWM_REGION_BLOCKS && info.writes && !info.owns);
	CHILD_ASSERT(info.blocks == BLOCKS_COUNT && info.block_bytes == BLOCKS_BYTES);
	atomic_store(&w->told->slot, info.slot);
}

static int reopen(struct blocks_worker *w)
{
	blocks_drop_all(w);
	blocks_at(w, AT_REOPEN);
	CHILD_ASSERT(gpuwm_region_close(w->region) == 0);
	open_region(w);
	return 0;
}

/* ---- what to do ---------------------------------------------------------- */

static const struct {
	op_fn *fn;
	unsigned often;
} ops[BLOCKS_OPS] = {
	[BLOCKS_RESERVE] = {blocks_op_reserve, 20},
	[BLOCKS_PUBLISH] = {blocks_op_publish, 14},
	[BLOCKS_ABANDON] = {blocks_op_abandon, 2},
	[BLOCKS_FIND] = {blocks_op_find, 6},
	[BLOCKS_HOLD] = {blocks_op_hold, 20},
	[BLOCKS_AWAIT] = {blocks_op_await, 6},
	[BLOCKS_HOLD_THESE] = {blocks_op_hold_these, 10},
	[BLOCKS_RELEASE] = {blocks_op_release, 14},
	[BLOCKS_DROP] = {blocks_op_drop, 3},
	[BLOCKS_MISUSE] = {blocks_op_misuse, 3},
	[BLOCKS_LOOK] = {blocks_op_look, 2},
	[BLOCKS_REOPEN] = {reopen, 1},
};

static enum blocks_op choose(struct blocks_worker *w)
{
	unsigned all = 0, throw;
	int op = 0;

	for (int i = 0; i < BLOCKS_OPS; i++)
		all += ops[i].often;
	throw = (unsigned)dice_throw(&w->dice, all);
	for (; throw >= ops[op].often; op++)
		throw -= ops[op].often;
	return (enum blocks_op)op;
}

static bool gives_back(enum blocks_op op)
{
	return op == BLOCKS_PUBLISH || op == BLOCKS_ABANDON || op == BLOCKS_RELEASE || op == BLOCKS_REOPEN;
}

static void parked(struct blocks_worker *w)
{
	blocks_settle(w);
	atomic_store(&w->told->state, POOL_PARKED);
	while (atomic_load(&w->board->park))
		pause_ns(LOOK_AGAIN_NS);
	atomic_store(&w->told->state, POOL_WORKING);
}

/* Until there is something to do. */
static void rest(struct blocks_worker *w)
{
	if (atomic_load(&w->board->park))
		parked(w);
	pause_ns(LOOK_AGAIN_NS);
}

/* Whether another operation may begin: it is counted. */
static bool is_granted(struct blocks_board *board)
{
	uint64_t count = atomic_load(&board->operations);

	do {
		if (count >= atomic_load(&board->granted) || atomic_load(&board->park))
			return false;
	} while (!atomic_compare_exchange_weak(&board->operations, &count, count + 1));
	return true;
}

/* There was nothing to do it with: it does not count. */
static void tell_done(struct blocks_worker *w, enum blocks_op op, int code)
{
	atomic_store(&w->told->filling, 0);
	blocks_at(w, AT_REST);
	if (code == -EBUSY) {
		atomic_fetch_sub(&w->board->operations, 1);
		sched_yield();
	} else if (code < 0) {
		w->told->refused[op]++;
	} else {
		w->told->done[op]++;
	}
}

static void work(struct blocks_worker *w)
{
	while (!atomic_load(&w->board->finish)) {
		enum blocks_op op;

		if (!is_granted(w->board)) {
			rest(w);
			continue;
		}
		op = choose(w);
		tell_done(w, op, atomic_load(&w->board->hoard) && gives_back(op) ? -EBUSY : ops[op].fn(w));
	}
}

static struct blocks_board *board_map(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *board = mmap(NULL, sizeof(struct blocks_board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHILD_ASSERT(board != MAP_FAILED);
	close(fd);
	return board;
}

int blocks_worker_main(int argc, char **argv)
{
	static struct blocks_worker w;

	CHILD_ASSERT(argc == 3);
	w.board = board_map(argv[0]);
	w.number = (unsigned)atoi(argv[1]);
	w.told = &w.board->told[w.number];
	atomic_store(&w.told->pid, getpid());
	w.dice.state = strtoull(argv[2], NULL, 10);
	w.stream = pool_stream_new();
	w.staging = blocks_staging_new(BLOCKS_OWNED + BLOCKS_HELD);
	connect_again(&w);
	open_region(&w);
	atomic_store(&w.told->state, POOL_WORKING);
	work(&w);
	blocks_drop_all(&w);
	CHILD_ASSERT(gpuwm_region_close(w.region) == 0);
	gpuwm_close(w.client);
	atomic_store(&w.told->state, POOL_ENDED);
	return 0;
}
