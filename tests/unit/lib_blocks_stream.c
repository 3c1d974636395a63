/* Blocks that are published and released in CUDA streams: on tests/fakecuda, or a GPU. */
#include "tests/support/lib/blocks.h"

#ifdef GPUWM_CUDA

#include "base/clock.h"
#include "memory/cuda.h"
#include "client/region/region.h"
#include "tests/support/any/between.h"
#include "tests/support/any/child.h"
#include "tests/support/any/until.h"
#include "tests/support/fail_alloc.h"

#include <dlfcn.h>
#include <pthread.h>

#define WRITER 0
#define READER 1
#define BLOCKS 8

static struct shared_region shared;
static struct gpuwm_region *writer, *reader;
static const struct cuda_driver *cuda;
static CUstream writing, reading; /* one of each process */
static struct error error;

static __typeof__(cuStreamBeginCapture_v2) *begin_capture;
static __typeof__(cuStreamEndCapture) *end_capture;

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
	need_streams();
	share(&shared, &(struct shared_wish){.blocks = BLOCKS, .block_bytes = BLOCK_BYTES});
	writer = open_as(&shared, WRITER, true);
	reader = open_as(&shared, READER, true);
	cr_assert(eq(int, cuda_open(&cuda, &error), 0), "%s", error.message);
	*(void **)&begin_capture = dlsym(cuda->library, "cuStreamBeginCapture_v2");
	*(void **)&end_capture = dlsym(cuda->library, "cuStreamEndCapture");
	memory_cuda.hold(&shared.device, &error);
	writing = stream();
	reading = stream();
}

static void end(void)
{
	close_as(&shared, reader);
	close_as(&shared, writer);
	share_end(&shared);
}

#define StreamTest(name) TestBetween(blocks_stream, name, begin(), end(), .timeout = 60)

/* ---- streams that stop ------------------------------------------------------------ */

/* Words of the head that only queues use. */
static _Atomic uint64_t *gate(CUstream of)
{
	return of == writing ? &writer->control.head->first : &writer->control.head->end;
}

/* The stream stops here until the gate is opened. */
static void stop(CUstream what)
{
	cr_assert(eq(int, region_words_wait(writer, what, gate(what), 1, &error), 0), "%s", error.message);
}

static void go_on(CUstream what)
{
	atomic_store(gate(what), 1);
}

static struct gpuwm_block publish_in_stream(uint64_t number)
{
	struct gpuwm_block block = reserve_one(writer, number);

	OK(gpuwm_blocks_publish_in_stream(writer, &block, 1, writing));
	return block;
}

/* ---- publishing --------------------------------------------------------------------- */

StreamTest(a_block_is_ready_when_the_stream_has_got_there)
{
	const struct gpuwm_block_key key = key_of(1);
	struct gpuwm_block block, held;
	size_t count;

	stop(writing);
	block = publish_in_stream(1);
	OK(gpuwm_blocks_hold(reader, &key, 1, 5, &held, &count));
	cr_assert(eq(sz, count, 0));
	figures_are(reader, BLOCKS - 1, 1, 0, 0);
	go_on(writing);
	OK(gpuwm_blocks_hold(reader, &key, 1, -1, &held, &count));
	cr_assert(count == 1 && held.number == block.number);
	OK(gpuwm_blocks_release(reader, &held, 1));
}

StreamTest(a_block_that_a_stream_publishes_belongs_to_the_stream)
{
	struct gpuwm_block block, both[2];
	struct gpuwm_block_key key;

	stop(writing);
	both[1] = block = publish_in_stream(1);
	both[0] = reserve_one(writer, 2);
	FAILS(gpuwm_blocks_publish(writer, &block, 1), -ESTALE);
	FAILS(gpuwm_blocks_abandon(writer, &block, 1), -ESTALE);
	FAILS(gpuwm_blocks_publish_in_stream(writer, both, 2, writing), -ESTALE);
	OK(gpuwm_block_key_of(writer, &block, &key));
	figures_are(writer, BLOCKS - 2, 2, 0, 0);
	OK(gpuwm_blocks_abandon(writer, both, 1));
	go_on(writing);
	UNTIL(is_ready(reader, 1));
	FAILS(gpuwm_block_key_of(writer, &block, &key), -EALREADY);
}

StreamTest(blocks_of_none_are_passed_over)
{
	struct gpuwm_block blocks[] = {{.number = GPUWM_BLOCK_NONE}, reserve_one(writer, 1)};

	OK(gpuwm_blocks_publish_in_stream(writer, blocks, 2, writing));
	blocks[1].number = GPUWM_BLOCK_NONE; /* the list may change at once */
	UNTIL(is_ready(reader, 1));
	blocks[1] = hold_one(reader, 1);
	OK(gpuwm_blocks_release_in_stream(reader, blocks, 2, reading));
	OK(gpuwm_blocks_release_in_stream(reader, NULL, 0, reading));
}

/* ---- releasing ------------------------------------------------------------------------ */

StreamTest(a_block_is_held_until_the_stream_has_got_there)
{
	struct gpuwm_block block;

	put(writer, 1, 1);
	block = hold_one(reader, 1);
	stop(reading);
	OK(gpuwm_blocks_release_in_stream(reader, &block, 1, reading));
	FAILS(gpuwm_blocks_release(reader, &block, 1), -EALREADY);
	FAILS(gpuwm_blocks_release_in_stream(reader, &block, 1, reading), -EALREADY);
	figures_are(writer, BLOCKS - 1, 0, 0, 1);
	go_on(reading);
	UNTIL(gpuwm_blocks_drop(writer, (struct gpuwm_block_key[]){key_of(1)}, 1, NULL) == 0 &&
	      !is_ready(writer, 1));
	figures_are(writer, BLOCKS, 0, 0, 0);
}

StreamTest(a_block_that_is_held_again_meanwhile_stays_held)
{
	struct gpuwm_block block, again;

	put(writer, 1, 1);
	block = hold_one(reader, 1);
	stop(reading);
	OK(gpuwm_blocks_release_in_stream(reader, &block, 1, reading));
	again = hold_one(reader, 1);
	go_on(reading);
	memory_cuda.enter(&shared.device, NULL);
	cr_assert(eq(int, cuda->cuStreamSynchronize(reading), CUDA_SUCCESS));
	memory_cuda.leave(&shared.device);
	figures_are(writer, BLOCKS - 1, 0, 0, 1);
	OK(gpuwm_blocks_release(reader, &again, 1));
	figures_are(writer, BLOCKS - 1, 0, 1, 0);
}

StreamTest(a_release_does_not_let_go_what_a_stream_still_reads)
{
	struct gpuwm_block block;

	put(writer, 1, 1);
	block = hold_one(reader, 1);
	stop(reading);
	OK(gpuwm_blocks_release_in_stream(reader, &block, 1, reading));
	block = hold_one(reader, 1);
	OK(gpuwm_blocks_release(reader, &block, 1));
	figures_are(writer, BLOCKS - 1, 0, 0, 1);
	go_on(reading);
	memory_cuda.enter(&shared.device, NULL);
	cr_assert(eq(int, cuda->cuStreamSynchronize(reading), CUDA_SUCCESS));
	memory_cuda.leave(&shared.device);
	figures_are(writer, BLOCKS - 1, 0, 1, 0);
}

StreamTest(two_thousand_hand_overs_in_streams)
{
	for (unsigned i = 0; i < 2000; i++) {
		const struct gpuwm_block_key key = key_of(i);
		struct gpuwm_block block;
		size_t count;

		OK(gpuwm_blocks_reserve(writer, &key, 1, -1, &block, &count));
		OK(gpuwm_blocks_publish_in_stream(writer, &block, 1, writing));
		OK(gpuwm_blocks_hold(reader, &key, 1, -1, &block, &count));
		cr_assert(eq(sz, count, 1));
		OK(gpuwm_blocks_release_in_stream(reader, &block, 1, reading));
	}
}

/* ---- what is refused --------------------------------------------------------------------- */

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

StreamTest(streams_that_are_being_captured_are_refused)
{
	struct gpuwm_block block = reserve_one(writer, 1);

	capture(writing);
	FAILS(gpuwm_blocks_publish_in_stream(writer, &block, 1, writing), -EBUSY);
	SAYS("the stream is being captured");
	capture_end(writing);
	OK(gpuwm_blocks_publish(writer, &block, 1));
	block = hold_one(reader, 1);
	capture(reading);
	FAILS(gpuwm_blocks_release_in_stream(reader, &block, 1, reading), -EBUSY);
	capture_end(reading);
	OK(gpuwm_blocks_release(reader, &block, 1));
}

StreamTest(without_memory_nothing_is_put_into_the_stream)
{
	struct gpuwm_block block = reserve_one(writer, 1);
	int r;

	fail_alloc_arm(1);
	r = gpuwm_blocks_publish_in_stream(writer, &block, 1, writing);
	cr_assert(fail_alloc_disarm());
	cr_assert(eq(int, r, -ENOMEM));
	OK(gpuwm_blocks_publish(writer, &block, 1));
	block = hold_one(writer, 1);
	fail_alloc_arm(1);
	r = gpuwm_blocks_release_in_stream(writer, &block, 1, writing);
	cr_assert(fail_alloc_disarm());
	cr_assert(eq(int, r, -ENOMEM));
	OK(gpuwm_blocks_release(writer, &block, 1));
}

/* ---- closing -------------------------------------------------------------------------------- */

static void *open_the_gate(void *what)
{
	for (int i = 0; i < 20; i++)
		until_pause(until_deadline());
	go_on(what);
	return NULL;
}

StreamTest(a_close_waits_for_the_streams)
{
	struct gpuwm_block block;
	pthread_t thread;

	put(writer, 1, 1);
	block = hold_one(reader, 1);
	stop(reading);
	OK(gpuwm_blocks_release_in_stream(reader, &block, 1, reading));
	cr_assert(eq(int, pthread_create(&thread, NULL, open_the_gate, reading), 0));
	OK(gpuwm_region_close(reader));
	figures_are(writer, BLOCKS - 1, 0, 1, 0);
	pthread_join(thread, NULL);
	reader = open_as(&shared, READER, true);
}

StreamTest(a_close_does_not_wait_for_ever)
{
	stop(writing);
	publish_in_stream(1);
	FAILS(gpuwm_region_close(writer), -EBUSY);
	SAYS("not got to 1 functions that publish or release its blocks");
	go_on(writing);
	UNTIL(is_ready(reader, 1));
}

/* ---- contexts that break ---------------------------------------------------------------------- */

/* A copy of the writer's stream loses its memory. */
static void break_context(void)
{
	CUdeviceptr address;
	void *pinned;

	memory_cuda.enter(&shared.device, NULL);
	pinned = aligned_alloc(4096, 4096);
	cr_assert(eq(int, memory_cuda.pin(pinned, 4096, &error), 0));
	cr_assert(eq(int, cuda->cuMemAlloc_v2(&address, 4096), CUDA_SUCCESS));
	cr_assert(eq(int, cuda->cuMemcpyHtoDAsync_v2(address, pinned, 16, writing), CUDA_SUCCESS));
	cr_assert(eq(int, cuda->cuMemFree_v2(address), CUDA_SUCCESS));
	memory_cuda.leave(&shared.device);
}

static bool on_fakecuda(void)
{
	const char *backend = getenv("GPUWM_TEST_BACKEND");

	return backend && strcmp(backend, "fakecuda") == 0;
}

StreamTest(a_broken_context_publishes_nothing_and_the_region_can_be_closed)
{
	struct gpuwm_block block = reserve_one(writer, 2);
	const uint64_t since = clock_steady_ms();

	if (!on_fakecuda())
		cr_skip_test("it breaks the context of the process");
	break_context();
	publish_in_stream(1);
	UNTIL(memory_cuda.is_broken(&shared.device));
	figures_are(reader, BLOCKS - 2, 2, 0, 0);
	FAILS(gpuwm_blocks_publish_in_stream(writer, &block, 1, writing), -EIO);
	OK(gpuwm_blocks_abandon(writer, &block, 1));
	OK(gpuwm_region_close(writer));
	cr_assert(lt(i64, clock_steady_ms() - since, 5000));
	has_exited(&shared, WRITER);
	figures_are(reader, BLOCKS, 0, 0, 0);
	writer = open_as(&shared, WRITER, true);
}

/* ---- another GPU reaches the memory -------------------------------------------------------------- */

static void find_peer(char ret[CUDA_ID_BYTES])
{
	if (cuda->device_count < 2)
		cr_skip_test("there is one GPU only");
	cr_assert(eq(int, cuda_id(1, ret, &error), 0));
}

/* Copies a byte of block 0 by the other GPU. Returns 0 if that may be. */
static CUresult copy_by_peer(const char *peer, unsigned char *ret)
{
	struct memory_device device;
	CUresult result;

	cr_assert(eq(int, memory_device_open(peer, &device, &error), 0));
	cr_assert(eq(int, memory_cuda.enter(&device, &error), 0), "%s", error.message);
	result = cuda->cuMemcpyDtoH_v2(ret, (CUdeviceptr)gpuwm_block_address(reader, 0), 1);
	memory_cuda.leave(&device);
	return result;
}

StreamTest(another_gpu_reaches_the_memory_when_it_is_told)
{
	unsigned char byte = 0;
	char peer[CUDA_ID_BYTES];

	find_peer(peer);
	write_block(writer, 0, 77);
	if (on_fakecuda())
		cr_assert(eq(int, copy_by_peer(peer, &byte), CUDA_ERROR_INVALID_VALUE));
	for (int twice = 0; twice < 2; twice++) {
		OK(gpuwm_region_reach(reader, peer));
		cr_assert(eq(int, copy_by_peer(peer, &byte), CUDA_SUCCESS));
		cr_assert(eq(u8, byte, 77));
		cr_assert(eq(u8, read_block(reader, 0), 77));
	}
	cr_assert(eq(u32, reader->device.peer_count, 1));
	OK(gpuwm_region_reach(reader, shared.device.id));
	cr_assert(eq(u32, reader->device.peer_count, 1));
}

static CUresult no_context(CUcontext *ret, CUdevice device)
{
	(void)ret;
	(void)device;
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Nobody makes a context on the region's GPU for it. */
StreamTest(a_stream_of_another_gpu_publishes_and_releases)
{
	struct cuda_driver *table = (struct cuda_driver *)cuda;
	const __typeof__(table->cuDevicePrimaryCtxRetain) retain = table->cuDevicePrimaryCtxRetain;
	struct gpuwm_block block = reserve_one(writer, 1);
	struct memory_device device;
	char peer[CUDA_ID_BYTES];
	CUstream theirs;

	find_peer(peer);
	cr_assert(eq(int, memory_device_open(peer, &device, &error), 0));
	cr_assert(eq(int, memory_cuda.enter(&device, &error), 0), "%s", error.message);
	cr_assert(eq(int, cuda->cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS));
	table->cuDevicePrimaryCtxRetain = no_context;
	OK(gpuwm_blocks_publish_in_stream(writer, &block, 1, theirs));
	UNTIL(is_ready(reader, 1));
	block = hold_one(reader, 1);
	OK(gpuwm_blocks_release_in_stream(reader, &block, 1, theirs));
	UNTIL(block_word_holders(atomic_load(&reader->control.blocks.words[block.number])) == 0);
	table->cuDevicePrimaryCtxRetain = retain;
	memory_cuda.leave(&device);
}

StreamTest(a_gpu_that_is_not_there_reaches_nothing)
{
	FAILS(gpuwm_region_reach(reader, "GPU-12345678-1234-1234-1234-123456789012"), -ENODEV);
	FAILS(gpuwm_region_reach(reader, "host"), -ENOTSUP);
	FAILS(gpuwm_region_reach(reader, "no device"), -EINVAL);
	FAILS(gpuwm_region_reach(reader, NULL), -EINVAL);
	FAILS(gpuwm_region_reach(NULL, "host"), -EINVAL);
	cr_assert(eq(u32, reader->device.peer_count, 0));
}

static int reach_in_child(void)
{
	return gpuwm_region_reach(reader, "host");
}

StreamTest(a_forked_child_lets_no_gpu_reach_the_memory)
{
	cr_assert(eq(int, IN_CHILD(reach_in_child() != -ECHILD), 0));
}

/* The driver reads its environment once, so these are tests of their own. */
static void without(const char *variable, const char *value, int code)
{
	char peer[CUDA_ID_BYTES];

	if (!on_fakecuda())
		cr_skip_test("it is about tests/fakecuda");
	setenv(variable, value, 1);
	begin();
	find_peer(peer);
	FAILS(gpuwm_region_reach(reader, peer), code);
	cr_assert(eq(u32, reader->device.peer_count, 0));
	end();
}

Test(blocks_stream, a_gpu_without_a_way_reaches_nothing, .timeout = 60)
{
	without("FAKECUDA_PEERS", "0", -ENOTSUP);
}

Test(blocks_stream, a_driver_that_refuses_access_is_told_of, .timeout = 60)
{
	without("FAKECUDA_FAIL", "cuMemSetAccess:3:999", -EIO);
}

#endif
