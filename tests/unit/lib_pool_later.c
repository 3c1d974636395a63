/* Callers that wait for chunks, each in its turn: threads of the program, and functions that the library calls. */
#include "tests/support/any/between.h"
#include "tests/support/any/threads.h"
#include "tests/support/any/until.h"
#include "tests/support/lib/pools.h"

#define OWNER 0
#define READER 1
#define BIT(slot) (UINT32_C(1) << (slot))
#define CALLS 16
/* A user_data of a request for two chunks, and more. */
#define TWO 100

static struct shared_region shared;
static struct gpuwm_region *pool, *reader;
static unsigned threads_before;

/* What the functions got, in the order of their calls. */
static struct {
	uintptr_t who;
	struct gpuwm_chunk *chunk, *second;
	int code;
	char message[256];
} calls[CALLS];
static _Atomic unsigned called;
static _Atomic int holds; /* the functions do not return */

static void begin(void)
{
	share(&shared, &(struct shared_wish){.bytes = MIB(2), .chunks = 64});
	pool = open_as(&shared, OWNER, true);
	reader = open_as(&shared, READER, false);
	threads_before = threads();
}

static void end(void)
{
	for (unsigned i = 0; i < called; i++) {
		if (calls[i].chunk)
			OK(gpuwm_chunk_discard(calls[i].chunk));
		if (calls[i].second)
			OK(gpuwm_chunk_discard(calls[i].second));
	}
	close_as(&shared, reader);
	close_as(&shared, pool);
	share_end(&shared);
	UNTIL(threads() == threads_before);
}

TestSuite(pool_later, .timeout = 60);

static void note(struct gpuwm_chunk **chunks, int code, void *user_data)
{
	const unsigned at = atomic_load(&called);

	calls[at].who = (uintptr_t)user_data;
	calls[at].chunk = chunks ? chunks[0] : NULL;
	calls[at].second = chunks && (uintptr_t)user_data >= TWO ? chunks[1] : NULL;
	calls[at].code = code;
	snprintf(calls[at].message, sizeof(calls[at].message), "%s", gpuwm_error()->message);
	atomic_fetch_add(&called, 1);
	while (atomic_load(&holds))
		;
}

static uint64_t later(uint64_t bytes, int64_t wait_ms, uintptr_t who)
{
	const uint64_t each[2] = {bytes, bytes};
	uint64_t request;

	OK(gpuwm_chunks_alloc_later(pool, &(struct gpuwm_chunks_wish){each, who >= TWO ? 2 : 1, wait_ms}, note,
				    (void *)who, &request));
	return request;
}

static int try_later(struct gpuwm_region *region, uint64_t bytes, size_t count, gpuwm_chunks_fn *fn)
{
	const uint64_t each[2] = {bytes, bytes};

	return gpuwm_chunks_alloc_later(region, &(struct gpuwm_chunks_wish){each, count, -1}, fn, NULL, NULL);
}

static void discard_call(unsigned at)
{
	OK(gpuwm_chunk_discard(calls[at].chunk));
	calls[at].chunk = NULL;
}

TestBetween(pool_later, a_function_gets_a_chunk_at_once_if_there_is_room, begin(), end())
{
	later(1000, 0, 1);
	UNTIL(called == 1);
	cr_assert(calls[0].who == 1 && calls[0].code == 0 && calls[0].chunk != NULL);
	cr_assert(eq(u64, gpuwm_chunk_bytes(calls[0].chunk), 1000));
}

TestBetween(pool_later, functions_are_called_in_their_turn, begin(), end())
{
	struct gpuwm_chunk *all = alloc(pool, MIB(2));
	struct gpuwm_pool_figures figures;

	later(MIB(2), -1, 1);
	later(1, -1, 2);
	later(MIB(1), -1, 3);
	OK(gpuwm_pool_figures(pool, &figures));
	cr_assert(figures.waiting == 3 && called == 0);
	OK(gpuwm_chunk_discard(all));
	UNTIL(called == 1);
	cr_assert(calls[0].who == 1);
	discard_call(0);
	UNTIL(called == 3);
	cr_assert(calls[1].who == 2 && calls[2].who == 3);
	OK(gpuwm_pool_figures(pool, &figures));
	cr_assert(eq(u32, figures.waiting, 0));
}

TestBetween(pool_later, a_caller_without_time_does_not_come_before_those_who_wait, begin(), end())
{
	struct gpuwm_token token = offer(pool, MIB(1), BIT(READER), 0);
	struct gpuwm_chunk *none;

	later(MIB(2), -1, 1);
	FAILS(gpuwm_chunk_alloc(pool, 1, 0, &none), -EAGAIN);
	FAILS(gpuwm_chunk_alloc(pool, 1, 5, &none), -EAGAIN);
	OK(gpuwm_chunk_finish(take(reader, &token)));
	UNTIL(called == 1);
	cr_assert(calls[0].code == 0);
}

TestBetween(pool_later, a_function_learns_that_its_time_is_over, begin(), end())
{
	struct gpuwm_chunk *all = alloc(pool, MIB(2));

	later(MIB(2), -1, 1);
	later(2, 200, 2); /* longer than a busy machine takes for the next line */
	later(1, 0, 3);
	UNTIL(called == 2);
	cr_assert(calls[0].who == 3 && calls[0].code == -EAGAIN && calls[0].chunk == NULL);
	cr_assert(strstr(calls[0].message, "has no room for 1 bytes") != NULL, "%s", calls[0].message);
	cr_assert(calls[1].who == 2 && calls[1].code == -EAGAIN);
	OK(gpuwm_chunk_discard(all));
	UNTIL(called == 3);
	cr_assert(calls[2].who == 1 && calls[2].code == 0);
}

TestBetween(pool_later, functions_learn_that_the_region_has_ended, begin(), end())
{
	struct gpuwm_chunk *all = alloc(pool, MIB(2));

	later(1, -1, 1);
	later(1, 10000, 2);
	control_ended(&shared.control, CONTROL_REMOVED, 0);
	UNTIL(called == 2);
	cr_assert(calls[0].code == -ESHUTDOWN && calls[1].code == -ESHUTDOWN);
	FAILS(try_later(pool, 1, 1, note), -ESHUTDOWN);
	OK(gpuwm_chunk_discard(all));
}

TestBetween(pool_later, the_region_stays_open_until_the_function_has_returned, begin(), end())
{
	struct gpuwm_chunk *all = alloc(pool, MIB(2));

	atomic_store(&holds, 1);
	later(1, 0, 1);
	UNTIL(called == 1);
	OK(gpuwm_chunk_discard(all));
	FAILS(gpuwm_region_close(pool), -EBUSY);
	SAYS("callers");
	atomic_store(&holds, 0);
	UNTIL(pool->pool->later == 0);
}

/* ---- several chunks, and those that leave the line --------------------------------- */

TestBetween(pool_later, a_function_gets_all_its_chunks_or_waits, begin(), end())
{
	struct gpuwm_chunk *first = alloc(pool, MIB(1)), *rest = alloc(pool, MIB(1));
	struct gpuwm_pool_figures figures;

	later(MIB(1), -1, TWO);
	OK(gpuwm_chunk_discard(first));
	OK(gpuwm_pool_figures(pool, &figures));
	cr_assert(figures.waiting == 1 && called == 0 && figures.free == MIB(1));
	OK(gpuwm_chunk_discard(rest));
	UNTIL(called == 1);
	cr_assert(calls[0].code == 0 && calls[0].chunk && calls[0].second);
}

TestBetween(pool_later, a_request_that_is_cancelled_leaves_the_line, begin(), end())
{
	struct gpuwm_chunk *half = alloc(pool, MIB(1));
	uint64_t first = later(MIB(2), -1, 1), second;

	second = later(2, -1, 2);
	cr_assert(first != second && called == 0);
	OK(gpuwm_chunks_alloc_cancel(pool, first));
	UNTIL(called == 2);
	cr_assert(calls[0].who == 1 && calls[0].code == -ECANCELED && calls[0].chunk == NULL);
	cr_assert(calls[1].who == 2 && calls[1].code == 0);
	FAILS(gpuwm_chunks_alloc_cancel(pool, first), -ENOENT);
	FAILS(gpuwm_chunks_alloc_cancel(pool, second), -ENOENT);
	OK(gpuwm_chunk_discard(half));
}

TestBetween(pool_later, the_message_says_who_comes_before, begin(), end())
{
	struct gpuwm_chunk *none, *half = alloc(pool, MIB(1));
	uint64_t first = later(MIB(1), -1, TWO);

	FAILS(gpuwm_chunk_alloc(pool, 1, 0, &none), -EAGAIN);
	SAYS("1 callers of this process wait before it, the first one for 2097152 bytes in 2 chunks");
	FAILS(gpuwm_chunk_alloc(pool, 1, 5, &none), -EAGAIN);
	SAYS("1 callers of this process wait before it");
	OK(gpuwm_chunks_alloc_cancel(pool, first));
	OK(gpuwm_chunk_alloc(pool, 1, 0, &none));
	OK(gpuwm_chunk_discard(none));
	OK(gpuwm_chunk_discard(half));
}

TestBetween(pool_later, a_region_whose_requests_were_cancelled_can_be_closed, begin(), end())
{
	struct gpuwm_chunk *half = alloc(pool, MIB(1));
	uint64_t requests[CALLS];

	for (unsigned i = 0; i < CALLS; i++)
		requests[i] = later(MIB(2), -1, i);
	for (unsigned i = 0; i < CALLS; i++)
		OK(gpuwm_chunks_alloc_cancel(pool, requests[i]));
	OK(gpuwm_chunk_discard(half));
}

TestBetween(pool_later, refuses_what_makes_no_sense, begin(), end())
{
	FAILS(try_later(pool, 0, 1, note), -EINVAL);
	FAILS(try_later(pool, 1, 0, note), -EINVAL);
	FAILS(try_later(pool, 1, 1, NULL), -EINVAL);
	FAILS(gpuwm_chunks_alloc_later(pool, NULL, note, NULL, NULL), -EINVAL);
	FAILS(try_later(pool, MIB(2) + 1, 1, note), -ENOSPC);
	FAILS(try_later(pool, MIB(1) + 1, 2, note), -ENOSPC);
	FAILS(try_later(pool, 1, 65, note), -ENOSPC);
	FAILS(try_later(reader, 1, 1, note), -EPERM);
	FAILS(gpuwm_chunks_alloc_cancel(reader, 1), -EPERM);
	FAILS(gpuwm_chunks_alloc_cancel(pool, 1), -ENOENT);
}

/* ---- threads and functions -------------------------------------------------------- */

static _Atomic int order[3];
static _Atomic int next_place;

static void *alloc_all(void *data)
{
	struct gpuwm_chunk *chunk;

	if (gpuwm_chunk_alloc(pool, MIB(2), -1, &chunk) == 0) {
		order[next_place++] = (int)(uintptr_t)data;
		gpuwm_chunk_discard(chunk);
	}
	return NULL;
}

static void discard_it(struct gpuwm_chunk **chunks, int code, void *user_data)
{
	(void)code;
	order[next_place++] = (int)(uintptr_t)user_data;
	gpuwm_chunk_discard(chunks[0]);
}

static uint32_t waiting(void)
{
	struct gpuwm_pool_figures figures;

	OK(gpuwm_pool_figures(pool, &figures));
	return figures.waiting;
}

TestBetween(pool_later, threads_and_functions_stand_in_one_line, begin(), end())
{
	struct gpuwm_chunk *all = alloc(pool, MIB(2));
	pthread_t first, third;

	cr_assert(eq(int, pthread_create(&first, NULL, alloc_all, (void *)1), 0));
	UNTIL(waiting() == 1);
	OK(gpuwm_chunks_alloc_later(pool, &(struct gpuwm_chunks_wish){&(uint64_t){MIB(2)}, 1, -1}, discard_it,
				    (void *)2, NULL));
	cr_assert(eq(int, pthread_create(&third, NULL, alloc_all, (void *)3), 0));
	UNTIL(waiting() == 3);
	OK(gpuwm_chunk_discard(all));
	pthread_join(first, NULL);
	pthread_join(third, NULL);
	cr_assert(order[0] == 1 && order[1] == 2 && order[2] == 3);
	UNTIL(pool->pool->later == 0);
}

static void *alloc_one(void *data)
{
	struct gpuwm_chunk *chunk;

	*(int *)data = gpuwm_chunk_alloc(pool, 1, -1, &chunk);
	if (*(int *)data == 0)
		gpuwm_chunk_discard(chunk);
	return NULL;
}

TestBetween(pool_later, a_thread_goes_on_when_the_request_before_it_is_cancelled, begin(), end())
{
	struct gpuwm_chunk *half = alloc(pool, MIB(1));
	uint64_t first = later(MIB(2), -1, 1);
	pthread_t thread;
	int code = 1;

	cr_assert(eq(int, pthread_create(&thread, NULL, alloc_one, &code), 0));
	UNTIL(waiting() == 2);
	OK(gpuwm_chunks_alloc_cancel(pool, first));
	pthread_join(thread, NULL);
	cr_assert(eq(int, code, 0));
	OK(gpuwm_chunk_discard(half));
	UNTIL(pool->pool->later == 0);
}
