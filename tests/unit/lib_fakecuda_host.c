/* Functions of the program that streams call, as tests/fakecuda does it. */
#ifdef GPUWM_CUDA

#include "tests/support/lib/fakecuda.h"

#include "tests/support/any/until.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

TestSuite(fakecuda_host, .init = fakecuda_open, .timeout = 60);

static _Atomic int calls;
static pthread_t caller;
static sem_t gate;
static unsigned char *pinned;
static CUdeviceptr memory;

static CUstream begin(void)
{
	CUmemGenericAllocationHandle handle;
	CUstream made;

	GOOD(cu.cuInit(0));
	enter(0);
	GOOD(cu.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
	GOOD(create(&handle, MIB2, 0));
	memory = map(handle, MIB2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	GOOD(cu.cuMemHostAlloc((void **)&pinned, 4096, 0));
	pinned[0] = 7;
	sem_init(&gate, 0, 0);
	return made;
}

/* What the function sees of the stream's work before it. */
static void look(void *user_data)
{
	caller = pthread_self();
	*(unsigned char *)user_data = *(volatile unsigned char *)memory;
	calls++;
}

static void wait_at_gate(void *unused)
{
	(void)unused;
	sem_wait(&gate);
	calls++;
}

Test(fakecuda_host, a_thread_of_the_driver_calls_it_behind_what_was_queued)
{
	unsigned char seen = 0;
	CUstream s = begin();

	GOOD(cu.cuMemcpyHtoDAsync_v2(memory, pinned, 1, s));
	GOOD(cu.cuLaunchHostFunc(s, look, &seen));
	UNTIL(calls == 1);
	cr_assert_eq(seen, 7);
	cr_assert(!pthread_equal(caller, pthread_self()));
	GOOD(cu.cuStreamSynchronize(s));
	cr_assert_eq(calls, 1);
}

/* Meanwhile other threads, and this one, make calls. */
Test(fakecuda_host, what_is_queued_behind_waits_until_it_has_returned)
{
	CUstream s = begin();

	GOOD(cu.cuLaunchHostFunc(s, wait_at_gate, NULL));
	GOOD(cu.cuMemcpyHtoDAsync_v2(memory, pinned, 1, s));
	for (int i = 0; i < 20; i++) {
		IS(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(s));
		until_pause(until_deadline());
	}
	cr_assert_eq(*(volatile unsigned char *)memory, 0);
	sem_post(&gate);
	GOOD(cu.cuStreamSynchronize(s));
	cr_assert_eq(*(volatile unsigned char *)memory, 7);
	cr_assert_eq(calls, 1);
}

static void be_slow(void *unused)
{
	(void)unused;
	until_pause(until_deadline());
	calls++;
}

Test(fakecuda_host, a_wait_for_the_context_waits_for_functions_of_all_streams)
{
	CUstream s = begin();

	for (int i = 0; i < 20; i++)
		GOOD(cu.cuLaunchHostFunc(s, be_slow, NULL));
	GOOD(cu.cuLaunchHostFunc(NULL, be_slow, NULL));
	GOOD(cu.cuCtxSynchronize());
	cr_assert_eq(calls, 21);
}

Test(fakecuda_host, nobody_calls_it_in_a_broken_context)
{
	unsigned char seen = 0;
	CUstream s = begin();

	GOOD(cu.cuMemcpyHtoDAsync_v2(memory, pinned, 1, s));
	unmap(memory, MIB2);
	GOOD(cu.cuLaunchHostFunc(s, look, &seen));
	IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuStreamSynchronize(s));
	until_pause(until_deadline());
	cr_assert_eq(calls, 0);
	IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuLaunchHostFunc(s, look, &seen));
}

Test(fakecuda_host, no_function_is_refused)
{
	CUstream s = begin();

	IS(CUDA_ERROR_INVALID_VALUE, cu.cuLaunchHostFunc(s, NULL, NULL));
}

#endif
