/* Words that streams write and wait for, as tests/fakecuda does it. */
#ifdef GPUWM_CUDA

#include "tests/support/lib/fakecuda.h"

#include "tests/support/any/threads.h"
#include "tests/support/any/until.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

TestSuite(fakecuda_words, .init = fakecuda_open, .timeout = 60);

#define WORDS 4096 /* bytes */

static uint64_t *words; /* registered; children have the same memory */
static unsigned char *pinned;
static CUdeviceptr memory; /* of device 0, as far as it was asked for */

static CUstream stream(void)
{
	CUstream made;

	GOOD(cu.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
	return made;
}

static void make_words(void)
{
	words = mmap(NULL, 2 * WORDS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert(words != MAP_FAILED);
	pinned = (unsigned char *)words + WORDS;
	pinned[0] = 1;
}

static void begin(void)
{
	const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
	CUdeviceptr address;

	if (!words)
		make_words();
	GOOD(cu.cuInit(0));
	enter(0);
	GOOD(cu.cuMemHostRegister_v2(words, 2 * WORDS, flags));
	GOOD(cu.cuMemHostGetDevicePointer_v2(&address, words + 1, 0));
	cr_assert(address == (CUdeviceptr)(words + 1));
}

static void make_memory(CUmemAccess_flags flags)
{
	CUmemGenericAllocationHandle handle;

	GOOD(create(&handle, MIB2, 0));
	memory = map(handle, MIB2, flags);
}

static uint64_t word(unsigned number)
{
	return __atomic_load_n(&words[number], __ATOMIC_ACQUIRE);
}

static void set(unsigned number, uint64_t value)
{
	__atomic_store_n(&words[number], value, __ATOMIC_RELEASE);
}

static CUresult put(CUstream in, unsigned number, uint64_t value)
{
	return cu.cuStreamWriteValue64_v2(in, (CUdeviceptr)&words[number], value, 0);
}

static CUresult wait_for(CUstream in, unsigned number, uint64_t value)
{
	return cu.cuStreamWaitValue64_v2(in, (CUdeviceptr)&words[number], value, CU_STREAM_WAIT_VALUE_GEQ);
}

static unsigned char byte_at(CUdeviceptr address)
{
	unsigned char byte = 0;

	GOOD(cu.cuMemcpyDtoH_v2(&byte, address, 1));
	return byte;
}

/* What can be done of streams that have words is done by then: the driver's thread looks at one stream after the other, and this one is
 * the last. */
static void all_had_a_turn(void)
{
	CUstream last = stream();

	set(9, 0);
	GOOD(put(last, 9, 1));
	UNTIL(word(9) == 1);
	GOOD(cu.cuStreamDestroy_v2(last));
}

/* The first answer after a wait has passed is the same. */
static void not_ready(CUstream s)
{
	IS(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(s));
	IS(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(s));
}

Test(fakecuda_words, a_stream_that_waits_is_not_ready_and_does_nothing_behind_the_wait)
{
	CUstream s;

	begin();
	make_memory(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	s = stream();
	GOOD(wait_for(s, 0, 3));
	GOOD(cu.cuMemcpyHtoDAsync_v2(memory, pinned, 1, s));
	for (int i = 0; i < 3; i++) {
		not_ready(s);
		all_had_a_turn();
		cr_assert_eq(byte_at(memory), 0);
	}
	set(0, 2);
	not_ready(s);
	set(0, 3);
	GOOD(cu.cuStreamSynchronize(s));
	cr_assert_eq(byte_at(memory), 1);
	GOOD(cu.cuStreamQuery(s));
}

static _Atomic pid_t synchronising;

static void *synchronise(void *data)
{
	enter(0);
	synchronising = gettid();
	GOOD(cu.cuStreamSynchronize(data));
	set(1, 1);
	return NULL;
}

/* Meanwhile other threads make calls. */
Test(fakecuda_words, who_synchronises_waits_for_the_word)
{
	CUstream s, other;
	pthread_t thread;

	begin();
	s = stream();
	other = stream();
	GOOD(wait_for(s, 0, 1));
	cr_assert(pthread_create(&thread, NULL, synchronise, s) == 0);
	UNTIL(synchronising && thread_is_asleep(getpid(), synchronising));
	cr_assert_eq(word(1), 0);
	GOOD(put(other, 0, 1));
	pthread_join(thread, NULL);
	cr_assert_eq(word(1), 1);
}

Test(fakecuda_words, a_write_comes_behind_what_was_queued_and_needs_no_call)
{
	CUstream s;

	begin();
	make_memory(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	s = stream();
	GOOD(cu.cuMemcpyHtoDAsync_v2(memory, pinned, 1, s));
	GOOD(put(s, 0, 5));
	UNTIL(word(0) >= 5);
	cr_assert_eq(*(volatile unsigned char *)memory, 1);
}

Test(fakecuda_words, what_is_queued_behind_the_last_word_is_as_late_as_ever)
{
	CUstream s;

	begin();
	make_memory(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	s = stream();
	GOOD(put(s, 0, 5));
	GOOD(cu.cuMemcpyHtoDAsync_v2(memory, pinned, 1, s));
	UNTIL(word(0) >= 5);
	all_had_a_turn();
	cr_assert_eq(*(volatile unsigned char *)memory, 0);
	GOOD(cu.cuStreamSynchronize(s));
	cr_assert_eq(*(volatile unsigned char *)memory, 1);
}

/* In a child: answers every odd number with the next one, all queued ahead, and makes no call any more. */
static void answer_and_stay(unsigned rounds)
{
	CUstream s;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	begin();
	s = stream();
	for (unsigned i = 0; i < rounds; i++) {
		GOOD(wait_for(s, 0, 2 * i + 1));
		GOOD(put(s, 0, 2 * i + 2));
	}
	for (;;)
		pause();
}

Test(fakecuda_words, two_processes_hand_over_to_each_other_with_all_queued_ahead)
{
	const unsigned rounds = 50;
	pid_t child;
	CUstream s;

	make_words();
	child = fork();
	if (child == 0)
		answer_and_stay(rounds);
	begin();
	s = stream();
	for (unsigned i = 0; i < rounds; i++) {
		GOOD(wait_for(s, 0, 2 * i));
		GOOD(put(s, 0, 2 * i + 1));
	}
	UNTIL(word(0) >= 2 * rounds);
	GOOD(cu.cuStreamSynchronize(s));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

Test(fakecuda_words, lie_in_memory_of_the_device_too)
{
	CUstream s, other;
	uint64_t value = 0;

	begin();
	make_memory(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	s = stream();
	other = stream();
	GOOD(cu.cuStreamWaitValue64_v2(s, memory + 8, 7, CU_STREAM_WAIT_VALUE_GEQ));
	GOOD(put(s, 0, 1));
	not_ready(s);
	GOOD(cu.cuStreamWriteValue64_v2(other, memory + 8, 7, 0));
	UNTIL(word(0) >= 1);
	GOOD(cu.cuMemcpyDtoH_v2(&value, memory + 8, 8));
	cr_assert_eq(value, 7);
}

Test(fakecuda_words, are_compared_as_numbers_that_wrap)
{
	CUstream s;

	begin();
	s = stream();
	set(0, UINT64_MAX);
	GOOD(wait_for(s, 0, 1));
	not_ready(s);
	set(0, 2);
	GOOD(cu.cuStreamSynchronize(s));
}

Test(fakecuda_words, a_stream_that_is_destroyed_goes_on)
{
	CUstream s;

	begin();
	s = stream();
	GOOD(wait_for(s, 1, 1));
	GOOD(put(s, 0, 1));
	GOOD(cu.cuStreamDestroy_v2(s));
	IS(CUDA_ERROR_INVALID_HANDLE, cu.cuStreamQuery(s));
	all_had_a_turn();
	cr_assert_eq(word(0), 0);
	set(1, 1);
	UNTIL(word(0) >= 1);
}

static double ms_since(const struct timespec *begin)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - begin->tv_sec) * 1e3 + (double)(now.tv_nsec - begin->tv_nsec) * 1e-6;
}

Test(fakecuda_words, all_that_is_queued_is_late_by_the_delay)
{
	struct timespec queued;
	CUstream s;

	setenv("FAKECUDA_DELAY", "100", 1);
	begin();
	make_memory(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	s = stream();
	clock_gettime(CLOCK_MONOTONIC, &queued);
	GOOD(cu.cuMemcpyHtoDAsync_v2(memory, pinned, 1, s));
	GOOD(put(s, 0, 1));
	IS(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(s));
	cr_assert(*(volatile unsigned char *)memory == 0 || ms_since(&queued) >= 100);
	GOOD(cu.cuStreamSynchronize(s));
	cr_assert(ms_since(&queued) >= 100);
	cr_assert_eq(word(0), 1);
}

Test(fakecuda_words, that_are_captured_do_not_happen)
{
	CUgraph graph;
	CUstream s;

	begin();
	s = stream();
	GOOD(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	GOOD(put(s, 0, 1));
	GOOD(wait_for(s, 1, 1));
	GOOD(cu.cuStreamEndCapture(s, &graph));
	GOOD(cu.cuStreamSynchronize(s));
	cr_assert_eq(word(0), 0);
}

Test(fakecuda_words, on_the_default_stream_happen_within_the_call)
{
	begin();
	set(1, 1);
	GOOD(wait_for(NULL, 1, 1));
	GOOD(put(NULL, 0, 1));
	cr_assert_eq(word(0), 1);
}

Test(fakecuda_words, refuse_what_is_no_word)
{
	CUdeviceptr address;
	uint64_t other;
	CUstream s;

	begin();
	make_memory(CU_MEM_ACCESS_FLAGS_PROT_READ);
	s = stream();
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuStreamWriteValue64_v2(s, (CUdeviceptr)&other, 1, 0));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuStreamWriteValue64_v2(s, (CUdeviceptr)words + 4, 1, 0));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuStreamWriteValue64_v2(s, memory, 1, 0));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuStreamWriteValue64_v2(s, 0, 1, 0));
	GOOD(cu.cuStreamWaitValue64_v2(s, memory, 0, CU_STREAM_WAIT_VALUE_GEQ));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemHostGetDevicePointer_v2(&address, &other, 0));
	IS(CUDA_ERROR_INVALID_HANDLE, put((CUstream)&other, 0, 1));
}

Test(fakecuda_words, are_not_there_where_the_device_has_none)
{
	int can = -1;

	setenv("FAKECUDA_WORDS", "0", 1);
	begin();
	GOOD(cu.cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
	cr_assert_eq(can, 0);
	IS(CUDA_ERROR_NOT_SUPPORTED, put(stream(), 0, 1));
}

#endif
