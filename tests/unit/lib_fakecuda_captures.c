/* What a stream capture forbids, as tests/fakecuda does it. */
#ifdef GPUWM_CUDA

#include "tests/support/lib/fakecuda.h"

#include <pthread.h>

TestSuite(fakecuda_captures, .init = fakecuda_open);

static CUcontext context;
static CUgraph graph;

static CUstream capture(unsigned flags, CUstreamCaptureMode mode)
{
	CUstream made;

	GOOD(cu.cuInit(0));
	context = enter(0);
	GOOD(cu.cuStreamCreate(&made, flags));
	GOOD(cu.cuStreamBeginCapture_v2(made, mode));
	return made;
}

/* In another thread, whose mode is this. */
static CUstreamCaptureMode other_mode;

static void *make_memory(void *data)
{
	CUmemGenericAllocationHandle handle;
	CUstreamCaptureMode mode = other_mode;

	GOOD(cu.cuThreadExchangeStreamCaptureMode(&mode));
	cr_assert(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
	*(CUresult *)data = create(&handle, MIB2, 0);
	return NULL;
}

static void *wait_for_context(void *data)
{
	GOOD(cu.cuCtxSetCurrent(context));
	*(CUresult *)data = cu.cuCtxSynchronize();
	return NULL;
}

static CUresult in_thread(void *(*function)(void *))
{
	CUresult result = CUDA_ERROR_UNKNOWN;
	pthread_t thread;

	cr_assert(pthread_create(&thread, NULL, function, &result) == 0);
	pthread_join(thread, NULL);
	return result;
}

Test(fakecuda_captures, end_whole_when_nothing_happened)
{
	CUstream stream = capture(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_GLOBAL);
	CUstreamCaptureStatus status;

	GOOD(cu.cuStreamIsCapturing(stream, &status));
	cr_assert(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	GOOD(cu.cuStreamIsCapturing(CU_STREAM_LEGACY, &status));
	GOOD(cu.cuStreamEndCapture(stream, &graph));
	cr_assert(graph != NULL);
	GOOD(cu.cuStreamIsCapturing(stream, &status));
	cr_assert(status == CU_STREAM_CAPTURE_STATUS_NONE);
}

Test(fakecuda_captures, are_lost_when_their_context_is_waited_for_by_anybody)
{
	CUstream stream = capture(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_RELAXED);
	CUstreamCaptureStatus status;

	IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, in_thread(wait_for_context));
	GOOD(cu.cuStreamIsCapturing(stream, &status));
	cr_assert(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &graph));
	cr_assert(graph == NULL);
	GOOD(cu.cuCtxSynchronize());
}

Test(fakecuda_captures, of_blocking_streams_are_told_by_the_default_one)
{
	CUstream stream = capture(CU_STREAM_DEFAULT, CU_STREAM_CAPTURE_MODE_GLOBAL);
	CUstreamCaptureStatus status;

	IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cu.cuStreamIsCapturing(CU_STREAM_LEGACY, &status));
	GOOD(cu.cuStreamEndCapture(stream, &graph));
	GOOD(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cu.cuStreamSynchronize(NULL));
	IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &graph));
}

/* What making memory gives in another thread, and the end of the capture. */
static void expect_modes(CUstreamCaptureMode mode, CUstreamCaptureMode other, CUresult made, CUresult ended)
{
	CUstream stream = capture(CU_STREAM_NON_BLOCKING, mode);

	other_mode = other;
	IS(made, in_thread(make_memory));
	IS(ended, cu.cuStreamEndCapture(stream, &graph));
}

Test(fakecuda_captures, forbid_unsafe_calls_by_the_modes_of_both_threads)
{
	const CUstreamCaptureMode global = CU_STREAM_CAPTURE_MODE_GLOBAL,
				  local = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
				  relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

	expect_modes(global, global, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
		     CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	expect_modes(global, local, CUDA_SUCCESS, CUDA_SUCCESS);
	expect_modes(global, relaxed, CUDA_SUCCESS, CUDA_SUCCESS);
	expect_modes(local, global, CUDA_SUCCESS, CUDA_SUCCESS);
	expect_modes(relaxed, global, CUDA_SUCCESS, CUDA_SUCCESS);
}

#endif
