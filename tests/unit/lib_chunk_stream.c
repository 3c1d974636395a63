/* Chunks that are written, read and awaited in CUDA streams: on tests/fakecuda, or a GPU. */
#include "client/region/region.h"
#include "include/gpuwm/dlpack.h"
#include "tests/support/any/between.h"
#include "tests/support/any/threads.h"
#include "tests/support/any/until.h"
#include "tests/support/lib/pools.h"

#define OWNER 0
#define READER 1
#define OTHER 2
#define BIT(slot) (UINT32_C(1) << (slot))

Test(chunk_stream, there_is_none_on_host)
{
	struct shared_region shared;
	struct gpuwm_region *pool;
	struct gpuwm_token token;
	struct gpuwm_chunk *chunk;

	if (!pools_on_host())
		cr_skip_test("it is about host memory");
	share(&shared, &(struct shared_wish){.bytes = MIB(2), .chunks = 8});
	pool = open_as(&shared, OWNER, true);
	chunk = alloc(pool, 1);
	FAILS(gpuwm_chunk_offer_in_stream(chunk, &(struct gpuwm_readers){BIT(OWNER), 0}, NULL, &token),
	      -ENOTSUP);
	OK(gpuwm_chunk_offer(chunk, &(struct gpuwm_readers){BIT(OWNER), 0}, &token));
	FAILS(gpuwm_chunk_take_in_stream(pool, &token, NULL, &chunk), -ENOTSUP);
	FAILS(gpuwm_token_finished_in_stream(pool, &token, NULL), -ENOTSUP);
	chunk = take(pool, &token);
	FAILS(gpuwm_chunk_wait_in_stream(chunk, NULL), -ENOTSUP);
	FAILS(gpuwm_chunk_finish_in_stream(chunk, NULL), -ENOTSUP);
	OK(gpuwm_chunk_finish(chunk));
	close_as(&shared, pool);
	share_end(&shared);
}

#ifdef GPUWM_CUDA

#include "memory/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

static struct shared_region shared;
static struct gpuwm_region *pool, *reader;
static const struct cuda_driver *cuda;
static CUstream writing, reading; /* one of each process */

static __typeof__(cuStreamBeginCapture_v2) *begin_capture;
static __typeof__(cuStreamEndCapture) *end_capture;
static __typeof__(cuStreamQuery) *query;

static CUstream stream(void)
{
	CUstream made;

	cr_assert(eq(int, memory_cuda.enter(&shared.device, NULL), 0));
	cr_assert(eq(int, cuda->cuStreamCreate(&made, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS));
	memory_cuda.leave(&shared.device);
	return made;
}

static void begin(void)
{
	struct error error;

	need_streams();
	share(&shared, &(struct shared_wish){.bytes = MIB(2), .chunks = 8});
	pool = open_as(&shared, OWNER, true);
	reader = open_as(&shared, READER, false);
	cr_assert(eq(int, cuda_open(&cuda, &error), 0), "%s", error.message);
	*(void **)&begin_capture = dlsym(cuda->library, "cuStreamBeginCapture_v2");
	*(void **)&end_capture = dlsym(cuda->library, "cuStreamEndCapture");
	*(void **)&query = dlsym(cuda->library, "cuStreamQuery");
	memory_cuda.hold(&shared.device, &error);
	writing = stream();
	reading = stream();
}

static void end(void)
{
	close_as(&shared, reader);
	close_as(&shared, pool);
	share_end(&shared);
}

TestSuite(chunk_stream_cuda, .timeout = 60);

/* ---- streams that stop ------------------------------------------------------------ */

/* Nobody else uses the word. */
static _Atomic uint64_t *gate(CUstream of)
{
	return control_finished(&pool->control, 7, of == writing ? 20 : 21);
}

/* The stream stops here until the gate is opened. */
static void stop(CUstream what)
{
	struct error error;

	cr_assert(eq(int, region_words_wait(pool, what, gate(what), 1, &error), 0), "%s", error.message);
}

static void go_on(CUstream what)
{
	atomic_store(gate(what), 1);
}

static bool is_idle(CUstream what)
{
	CUresult result;

	memory_cuda.enter(&shared.device, NULL);
	result = query(what);
	memory_cuda.leave(&shared.device);
	return result == CUDA_SUCCESS;
}

static struct gpuwm_token offer_in_stream(struct gpuwm_chunk *chunk, uint32_t named)
{
	struct gpuwm_token token;

	OK(gpuwm_chunk_offer_in_stream(chunk, &(struct gpuwm_readers){named, 0}, writing, &token));
	return token;
}

static struct gpuwm_chunk *take_in_stream(const struct gpuwm_token *token)
{
	struct gpuwm_chunk *chunk;

	OK(gpuwm_chunk_take_in_stream(reader, token, reading, &chunk));
	return chunk;
}

/* ---- handing over ------------------------------------------------------------------ */

TestBetween(chunk_stream_cuda, a_reader_waits_for_the_writers_stream, begin(), end())
{
	struct gpuwm_token token;
	struct gpuwm_chunk *chunk, *none;

	stop(writing);
	token = offer_in_stream(alloc(pool, MIB(2)), BIT(READER));
	FAILS(gpuwm_chunk_take(reader, &token, 0, &none), -ETIMEDOUT);
	FAILS(gpuwm_chunk_take(reader, &token, 5, &none), -ETIMEDOUT);
	chunk = take_in_stream(&token);
	FAILS(gpuwm_chunk_check(chunk), -EAGAIN);
	FAILS(gpuwm_chunk_wait(chunk, 2), -ETIMEDOUT);
	cr_assert(is_idle(reading) == false);
	go_on(writing);
	OK(gpuwm_chunk_wait(chunk, -1));
	OK(gpuwm_chunk_check(chunk));
	UNTIL(is_idle(reading));
	OK(gpuwm_chunk_finish(chunk));
	all_is_free(pool);
}

TestBetween(chunk_stream_cuda, a_chunk_is_free_when_the_readers_stream_has_passed, begin(), end())
{
	struct gpuwm_token token = offer_in_stream(alloc(pool, MIB(2)), BIT(READER));
	struct gpuwm_chunk *none;

	stop(reading);
	OK(gpuwm_chunk_finish_in_stream(take_in_stream(&token), reading));
	FAILS(gpuwm_chunk_alloc(pool, 1, 3, &none), -EAGAIN);
	SAYS("process 1001 (user-b), which reads it");
	FAILS(gpuwm_token_finished(pool, &token, 2), -ETIMEDOUT);
	go_on(reading);
	OK(gpuwm_token_finished(pool, &token, -1));
	OK(gpuwm_chunk_alloc(pool, MIB(2), -1, &none));
	OK(gpuwm_chunk_discard(none));
	all_is_free(pool);
}

TestBetween(chunk_stream_cuda, a_chunk_is_not_free_before_its_stream_has_written_it, begin(), end())
{
	struct gpuwm_token token;
	struct gpuwm_chunk *none;

	stop(writing);
	token = offer_in_stream(alloc(pool, MIB(2)), BIT(READER));
	OK(gpuwm_chunk_finish(take_in_stream(&token)));
	OK(gpuwm_token_withdraw(pool, &token));
	FAILS(gpuwm_chunk_alloc(pool, 1, 3, &none), -EAGAIN);
	SAYS("a stream that still writes it");
	go_on(writing);
	UNTIL(is_idle(writing) && is_idle(reading));
	all_is_free(pool);
}

TestBetween(chunk_stream_cuda, a_stream_waits_for_all_readers, begin(), end())
{
	struct gpuwm_region *other = open_as(&shared, OTHER, false);
	struct gpuwm_token token = offer(pool, 1, BIT(READER) | BIT(OTHER), 0);

	OK(gpuwm_token_finished_in_stream(pool, &token, writing));
	cr_assert(is_idle(writing) == false);
	OK(gpuwm_chunk_finish_in_stream(take_in_stream(&token), reading));
	UNTIL(is_idle(reading));
	cr_assert(is_idle(writing) == false);
	OK(gpuwm_chunk_finish(take(other, &token)));
	UNTIL(is_idle(writing));
	OK(gpuwm_token_finished_in_stream(pool, &token, writing));
	UNTIL(is_idle(writing));
	close_as(&shared, other);
}

TestBetween(chunk_stream_cuda, a_stream_does_not_wait_for_readers_that_die_or_are_withdrawn_from, begin(),
	    end())
{
	struct gpuwm_region *other = open_as(&shared, OTHER, false);
	struct gpuwm_token token = offer(pool, 1, BIT(READER) | BIT(OTHER), 0);
	struct gpuwm_chunk *chunk = take(other, &token);

	OK(gpuwm_token_finished_in_stream(pool, &token, writing));
	OK(gpuwm_token_withdraw(pool, &token));
	cr_assert(is_idle(writing) == false);
	has_exited(&shared, OTHER);
	UNTIL(is_idle(writing));
	OK(gpuwm_chunk_finish(chunk));
	close_as(&shared, other);
}

TestBetween(chunk_stream_cuda, a_reader_goes_on_when_the_writer_dies, begin(), end())
{
	struct gpuwm_token token;
	struct gpuwm_chunk *chunk;

	stop(writing);
	token = offer_in_stream(alloc(pool, 1), BIT(READER));
	chunk = take_in_stream(&token);
	has_exited(&shared, OWNER);
	UNTIL(is_idle(reading));
	FAILS(gpuwm_chunk_check(chunk), -EOWNERDEAD);
	SAYS("process 1000 (user-a)");
	OK(gpuwm_chunk_finish(chunk));
	go_on(writing);
	UNTIL(is_idle(writing));
}

TestBetween(chunk_stream_cuda, ten_thousand_hand_overs_in_streams, begin(), end(), .timeout = 120)
{
	for (unsigned i = 0; i < 10000; i++) {
		struct gpuwm_chunk *chunk;
		struct gpuwm_token token;

		OK(gpuwm_chunk_alloc(pool, 1 + i % 70 * 10000, -1, &chunk));
		token = offer_in_stream(chunk, BIT(READER));
		OK(gpuwm_chunk_finish_in_stream(take_in_stream(&token), reading));
	}
	UNTIL(is_idle(reading) && is_idle(writing));
	all_is_free(pool);
}

static void *export_of(struct gpuwm_chunk *chunk)
{
	const uint64_t shape = 1;
	const struct gpuwm_chunk_view view = {.dtype = GPUWM_U8, .ndim = 1, .shape = &shape};
	struct DLManagedTensor *made;

	OK(gpuwm_chunk_dlpack(chunk, &view, &made));
	return made;
}

TestBetween(chunk_stream_cuda, the_last_export_finishes_in_the_stream_of_the_handle, begin(), end())
{
	struct gpuwm_token token = offer_in_stream(alloc(pool, MIB(2)), BIT(READER));
	struct gpuwm_chunk *chunk = take_in_stream(&token);
	struct DLManagedTensor *tensor = export_of(chunk);

	OK(gpuwm_chunk_finish_in_stream(chunk, reading));
	FAILS(gpuwm_token_finished(pool, &token, 20), -ETIMEDOUT);
	stop(reading);
	tensor->deleter(tensor);
	UNTIL(atomic_load(&reader->handles) == 0);
	FAILS(gpuwm_token_finished(pool, &token, 20), -ETIMEDOUT);
	go_on(reading);
	OK(gpuwm_token_finished(pool, &token, -1));
	all_is_free(pool);
}

/* ---- captures ----------------------------------------------------------------------- */

static void capture(CUstream what)
{
	memory_cuda.enter(&shared.device, NULL);
	cr_assert(eq(int, begin_capture(what, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS));
	memory_cuda.leave(&shared.device);
}

static void capture_end(CUstream what)
{
	CUgraph graph;

	memory_cuda.enter(&shared.device, NULL);
	cr_assert(eq(int, end_capture(what, &graph), CUDA_SUCCESS));
	memory_cuda.leave(&shared.device);
}

TestBetween(chunk_stream_cuda, streams_that_are_being_captured_are_refused, begin(), end())
{
	struct gpuwm_chunk *chunk = alloc(pool, MIB(2)), *none;
	struct gpuwm_token token;

	capture(writing);
	FAILS(gpuwm_chunk_offer_in_stream(chunk, &(struct gpuwm_readers){BIT(READER), 0}, writing, &token),
	      -EBUSY);
	capture_end(writing);
	token = offer_in_stream(chunk, BIT(READER));
	capture(reading);
	FAILS(gpuwm_chunk_take_in_stream(reader, &token, reading, &none), -EBUSY);
	FAILS(gpuwm_token_finished_in_stream(reader, &token, reading), -EBUSY);
	capture_end(reading);
	chunk = take_in_stream(&token);
	capture(reading);
	FAILS(gpuwm_chunk_finish_in_stream(chunk, reading), -EBUSY);
	FAILS(gpuwm_chunk_wait_in_stream(chunk, reading), -EBUSY);
	capture_end(reading);
	OK(gpuwm_chunk_finish_in_stream(chunk, reading));
	UNTIL(is_idle(reading));
	all_is_free(pool);
}

/* ---- closing --------------------------------------------------------------------------- */

static void *open_the_gates(void *unused)
{
	(void)unused;
	UNTIL(thread_sleeps_in(getpid(), NULL, CALL_POLL)); /* the close, between two looks */
	go_on(writing);
	go_on(reading);
	return NULL;
}

TestBetween(chunk_stream_cuda, a_close_waits_for_the_streams, begin(), end())
{
	struct gpuwm_token token;
	pthread_t thread;

	stop(reading);
	token = offer_in_stream(alloc(pool, 1), BIT(READER));
	OK(gpuwm_chunk_finish_in_stream(take_in_stream(&token), reading));
	cr_assert(eq(int, pthread_create(&thread, NULL, open_the_gates, NULL), 0));
	close_as(&shared, reader);
	cr_assert(is_idle(reading));
	pthread_join(thread, NULL);
	all_is_free(pool);
	reader = open_as(&shared, READER, false);
}

TestBetween(chunk_stream_cuda, a_close_does_not_wait_for_ever, begin(), end())
{
	struct gpuwm_chunk *chunk;

	stop(writing);
	offer_in_stream(alloc(pool, 1), BIT(READER));
	FAILS(gpuwm_region_close(pool), -EBUSY);
	SAYS("streams of this process");
	go_on(writing);
	UNTIL(is_idle(writing));
	OK(gpuwm_chunk_alloc(pool, 1, 0, &chunk));
	OK(gpuwm_chunk_discard(chunk));
}

#endif
