/* Words that streams write and wait for, on a GPU or on tests/fakecuda: LD_LIBRARY_PATH says which. */
#include "memory/memory.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

Test(memory_words, host_memory_has_no_streams)
{
	cr_assert(memory_host.register_words == NULL && memory_host.unregister_words == NULL);
	cr_assert(memory_host.write_word == NULL && memory_host.wait_word == NULL);
}

#ifdef GPUWM_CUDA

#include "memory/cuda.h"
#include "tests/support/any/until.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#define WORDS 4096

static struct memory_device device;
static const struct memory_ops *ops = &memory_cuda;
static const struct cuda_driver *cuda;
static struct error error;
static uint64_t *words; /* a shared mapping of a memfd */

static __typeof__(cuStreamBeginCapture_v2) *begin_capture;
static __typeof__(cuStreamEndCapture) *end_capture;
static __typeof__(cuStreamQuery) *query;

static bool on_fakecuda(void)
{
	const char *backend = getenv("GPUWM_TEST_BACKEND");

	return backend && strcmp(backend, "fakecuda") == 0;
}

static void open_device(void)
{
	char id[CUDA_ID_BYTES];

	if (!getenv("GPUWM_TEST_BACKEND") || strcmp(getenv("GPUWM_TEST_BACKEND"), "host") == 0)
		cr_skip("GPUWM_TEST_BACKEND is not set: no CUDA driver to test with");
	cr_assert(eq(int, cuda_open(&cuda, &error), 0), "%s", error.message);
	cr_assert(eq(int, cuda_id(0, id, &error), 0), "%s", error.message);
	cr_assert(eq(int, memory_device_open(id, &device, &error), 0), "%s", error.message);
	*(void **)&begin_capture = dlsym(cuda->library, "cuStreamBeginCapture_v2");
	*(void **)&end_capture = dlsym(cuda->library, "cuStreamEndCapture");
	*(void **)&query = dlsym(cuda->library, "cuStreamQuery");
	cr_assert(begin_capture && end_capture && query);
}

static void map_words(void)
{
	int fd = memfd_create("words", MFD_CLOEXEC);

	cr_assert(eq(int, ftruncate(fd, WORDS), 0));
	words = mmap(NULL, WORDS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert(words != MAP_FAILED);
	close(fd);
}

static int register_words(void)
{
	int r;

	cr_assert(eq(int, ops->enter(&device, &error), 0), "%s", error.message);
	r = ops->register_words(&device, words, WORDS, &error);
	ops->leave(&device);
	return r;
}

/* The context stays, but is not current: the calls find it by themselves. */
static void setup(void)
{
	open_device();
	map_words();
	cr_assert(eq(int, ops->hold(&device, &error), 0), "%s", error.message);
	cr_assert(eq(int, register_words(), 0), "%s", error.message);
}

TestSuite(memory_words_cuda, .init = setup, .timeout = 60);

static CUstream stream_with(unsigned flags)
{
	CUstream stream;

	cr_assert(eq(int, ops->enter(&device, &error), 0));
	cr_assert(eq(int, cuda->cuStreamCreate(&stream, flags), CUDA_SUCCESS));
	ops->leave(&device);
	return stream;
}

static CUstream stream(void)
{
	return stream_with(CU_STREAM_NON_BLOCKING);
}

static CUresult in_context(CUresult (*call)(CUstream), CUstream on)
{
	CUresult result;

	cr_assert(eq(int, ops->enter(&device, &error), 0));
	result = call(on);
	ops->leave(&device);
	return result;
}

/* The stand-in's first answer after a wait has passed is the same. */
static void not_ready(CUstream on)
{
	cr_assert(eq(int, in_context(query, on), CUDA_ERROR_NOT_READY));
	cr_assert(eq(int, in_context(query, on), CUDA_ERROR_NOT_READY));
}

static uint64_t word(unsigned number)
{
	return __atomic_load_n(&words[number], __ATOMIC_ACQUIRE);
}

static void set(unsigned number, uint64_t value)
{
	__atomic_store_n(&words[number], value, __ATOMIC_RELEASE);
}

static void put(CUstream in, unsigned number, uint64_t value)
{
	cr_assert(eq(int, ops->write_word(&device, in, &words[number], value, &error), 0), "%s", error.message);
}

static void wait_for(CUstream in, unsigned number, uint64_t value)
{
	cr_assert(eq(int, ops->wait_word(&device, in, &words[number], value, &error), 0), "%s", error.message);
}

Test(memory_words_cuda, a_stream_waits_for_what_another_one_writes)
{
	CUstream reader = stream(), writer = stream();

	wait_for(reader, 0, 7);
	put(reader, 1, 8);
	not_ready(reader);
	cr_assert(eq(u64, word(1), 0));
	put(writer, 0, 7);
	UNTIL(word(1) == 8);
	cr_assert(eq(u64, word(0), 7));
	cr_assert(eq(int, in_context(cuda->cuStreamSynchronize, reader), CUDA_SUCCESS));
}

Test(memory_words_cuda, a_plain_store_by_the_cpu_releases_a_stream)
{
	CUstream reader = stream();

	wait_for(reader, 0, UINT64_C(1) << 40);
	not_ready(reader);
	set(0, (UINT64_C(1) << 40) - 1);
	not_ready(reader);
	set(0, (UINT64_C(1) << 40) + 5);
	cr_assert(eq(int, in_context(cuda->cuStreamSynchronize, reader), CUDA_SUCCESS));
}

Test(memory_words_cuda, work_in_front_of_a_write_is_there_when_the_word_is)
{
	struct memory_segment segment;
	CUstream writer = stream();
	uint64_t bytes, value = 0;

	cr_assert(eq(int, ops->granularity(&device, &bytes, &error), 0));
	cr_assert(eq(int, ops->create(&device, bytes, &segment, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->map(&device, &segment, MEMORY_WRITE, &error), 0), "%s", error.message);
	set(2, 4711);
	cr_assert(eq(int, ops->enter(&device, &error), 0));
	cr_assert(eq(int,
		     cuda->cuMemcpyHtoDAsync_v2((CUdeviceptr)segment.address + bytes - 8, &words[2], 8, writer),
		     CUDA_SUCCESS));
	put(writer, 0, 1);
	UNTIL(word(0) == 1);
	cr_assert(eq(int, ops->read(&device, &value, (char *)segment.address + bytes - 8, 8, &error), 0));
	ops->leave(&device);
	cr_assert(eq(u64, value, 4711));
	ops->release(&device, &segment);
}

/* Of memory that two mappings show, as those of two processes would. */
Test(memory_words_cuda, lie_in_shared_memory_of_the_gpu_too)
{
	struct memory_segment segment, one, other;
	CUstream reader = stream(), writer = stream();
	uint64_t bytes;

	cr_assert(eq(int, ops->granularity(&device, &bytes, &error), 0));
	cr_assert(eq(int, ops->create(&device, bytes, &segment, &error), 0));
	cr_assert(eq(int, ops->share(&device, &segment, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->map_shared(&device, segment.fd, bytes, MEMORY_WRITE, &one, &error), 0));
	cr_assert(eq(int, ops->map_shared(&device, segment.fd, bytes, MEMORY_WRITE, &other, &error), 0));
	cr_assert(eq(int, ops->enter(&device, &error), 0));
	cr_assert(eq(int, ops->zero(&device, &one, &error), 0));
	cr_assert(eq(int, ops->wait_word(&device, reader, other.address, 3, &error), 0), "%s", error.message);
	put(reader, 0, 1);
	not_ready(reader);
	cr_assert(eq(int, ops->write_word(&device, writer, one.address, 3, &error), 0), "%s", error.message);
	UNTIL(word(0) == 1);
	cr_assert(eq(int, cuda->cuCtxSynchronize(), CUDA_SUCCESS));
	ops->leave(&device);
	ops->unmap_shared(&device, &other);
	ops->unmap_shared(&device, &one);
	ops->release(&device, &segment);
}

Test(memory_words_cuda, leave_the_current_context_as_it_was)
{
	CUcontext context = NULL;

	put(stream(), 0, 1);
	cr_assert(eq(int, cuda->cuCtxGetCurrent(&context), CUDA_SUCCESS));
	cr_assert(context == NULL);
}

/* ---- captures --------------------------------------------------------------- */

static void refused(int r)
{
	cr_assert(eq(int, r, -EBUSY), "%s", error.message);
	cr_assert(strstr(error.message, "is being captured") != NULL, "%s", error.message);
	cr_assert(strstr(error.detail, "launch of the graph") != NULL, "%s", error.detail);
}

/* Captures one of `flags`, tries both calls on `on` (NULL: on that one) and ends the capture, which must be whole. */
static void expect_refused(unsigned flags, bool on_default, CUstreamCaptureMode mode)
{
	CUstream captured = stream_with(flags), on = on_default ? NULL : captured;
	CUgraph graph = NULL;

	cr_assert(eq(int, ops->enter(&device, &error), 0));
	cr_assert(eq(int, begin_capture(captured, mode), CUDA_SUCCESS));
	refused(ops->write_word(&device, on, words, 1, &error));
	refused(ops->wait_word(&device, on, words, 1, &error));
	ops->leave(&device);
	refused(ops->write_word(&device, on, words, 1, &error));
	cr_assert(eq(int, ops->enter(&device, &error), 0));
	cr_assert(eq(int, end_capture(captured, &graph), CUDA_SUCCESS));
	cr_assert(graph != NULL);
	ops->leave(&device);
	put(captured, 0, 1);
	UNTIL(word(0) == 1);
}

Test(memory_words_cuda, are_refused_in_a_capture_which_stays_whole)
{
	expect_refused(CU_STREAM_NON_BLOCKING, false, CU_STREAM_CAPTURE_MODE_GLOBAL);
	expect_refused(CU_STREAM_NON_BLOCKING, false, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	expect_refused(CU_STREAM_DEFAULT, false, CU_STREAM_CAPTURE_MODE_RELAXED);
}

Test(memory_words_cuda, are_refused_on_a_default_stream_behind_a_capture)
{
	expect_refused(CU_STREAM_DEFAULT, true, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

Test(memory_words_cuda, go_beside_the_capture_of_another_stream)
{
	CUstream captured = stream(), other = stream();
	CUgraph graph = NULL;

	cr_assert(eq(int, ops->enter(&device, &error), 0));
	cr_assert(eq(int, begin_capture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS));
	put(other, 0, 1);
	wait_for(other, 0, 1);
	UNTIL(word(0) == 1);
	cr_assert(eq(int, end_capture(captured, &graph), CUDA_SUCCESS));
	cr_assert(graph != NULL);
	ops->leave(&device);
}

/* ---- what fails --------------------------------------------------------------- */

Test(memory_words_cuda, are_registered_once)
{
	cr_assert(eq(int, register_words(), -ENOMEM));
	cr_assert(strstr(error.message, "cuMemHostRegister") != NULL, "%s", error.message);
	cr_assert(eq(int, ops->enter(&device, &error), 0));
	ops->unregister_words(&device, words);
	ops->leave(&device);
	cr_assert(eq(int, register_words(), 0), "%s", error.message);
}

/* On the stand-in: a call of the driver ends with this result. */
static void inject(const char *variable, const char *value)
{
	if (!on_fakecuda())
		cr_skip("needs the stand-in for the driver");
	setenv(variable, value, 1);
	open_device();
	map_words();
	cr_assert(eq(int, ops->hold(&device, &error), 0), "%s", error.message);
}

static void no_words(void)
{
	inject("FAKECUDA_WORDS", "0");
}

Test(memory_words_short, a_device_without_words_is_named, .init = no_words)
{
	cr_assert(eq(int, register_words(), -ENOTSUP));
	cr_assert(strstr(error.message, device.id) != NULL, "%s", error.message);
	cr_assert(strstr(error.detail, "wait for the stream") != NULL, "%s", error.detail);
}

static void no_attribute(void)
{
	inject("FAKECUDA_FAIL", "cuDeviceGetAttribute:1:999");
}

Test(memory_words_short, a_device_that_is_not_known_is_an_error, .init = no_attribute)
{
	cr_assert(eq(int, register_words(), -EIO));
	cr_assert(eq(int, register_words(), 0), "%s", error.message);
}

static void no_registration(void)
{
	inject("FAKECUDA_FAIL", "cuMemHostRegister_v2:1:2,cuMemHostRegister_v2:2:801");
}

Test(memory_words_short, a_registration_that_fails_leaves_nothing, .init = no_registration)
{
	cr_assert(eq(int, register_words(), -ENOMEM));
	cr_assert(eq(int, register_words(), -ENOTSUP));
	cr_assert(eq(int, register_words(), 0), "%s", error.message);
}

static void no_address(void)
{
	inject("FAKECUDA_FAIL", "cuMemHostGetDevicePointer_v2:1:1");
}

Test(memory_words_short, words_without_an_address_are_not_registered, .init = no_address)
{
	cr_assert(eq(int, register_words(), -EIO));
	cr_assert(eq(int, register_words(), 0), "%s", error.message);
}

static void no_operations(void)
{
	inject("FAKECUDA_FAIL",
	       "cuStreamWriteValue64_v2:1:999,cuStreamWaitValue64_v2:1:999,cuStreamIsCapturing:3:999");
	cr_assert(eq(int, register_words(), 0), "%s", error.message);
}

Test(memory_words_short, an_operation_that_fails_is_named, .init = no_operations)
{
	CUstream s = stream();

	cr_assert(eq(int, ops->write_word(&device, s, words, 1, &error), -EIO));
	cr_assert(strstr(error.message, "cuStreamWriteValue64") != NULL, "%s", error.message);
	cr_assert(eq(int, ops->wait_word(&device, s, words, 1, &error), -EIO));
	cr_assert(strstr(error.message, "cuStreamWaitValue64") != NULL, "%s", error.message);
	cr_assert(eq(int, ops->wait_word(&device, s, words, 1, &error), -EIO));
	cr_assert(strstr(error.message, "cuStreamIsCapturing") != NULL, "%s", error.message);
	put(s, 0, 1);
	UNTIL(word(0) == 1);
}

static void no_context(void)
{
	inject("FAKECUDA_FAIL", "cuDevicePrimaryCtxRetain:3:2,cuCtxPushCurrent_v2:2:999");
	cr_assert(eq(int, register_words(), 0), "%s", error.message);
}

Test(memory_words_short, without_a_context_nothing_is_queued, .init = no_context)
{
	cr_assert(eq(int, ops->write_word(&device, NULL, words, 1, &error), -ENOSPC));
	cr_assert(eq(int, ops->write_word(&device, NULL, words, 1, &error), -EIO));
	cr_assert(eq(u64, word(0), 0));
	put(NULL, 0, 1);
	UNTIL(word(0) == 1);
}

#endif
