/* The primary context of a GPU, and what waits for the work in it. */
#include "memory_internal.h"

#include "cuda.h"
#include "../base/reaper.h"

#include <errno.h>

static int context_retain(const struct memory_device *device, CUcontext *ret, struct error *error)
{
	const struct cuda_driver *cuda;
	CUresult result;
	int r = cuda_open(&cuda, error);

	if (r < 0)
		return r;
	result = cuda->cuDevicePrimaryCtxRetain(ret, device->ordinal);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		return cuda_fail(result, -ENOSPC, error, "no room for a CUDA context (about 520 MiB)");
	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, -EIO, error, "making a CUDA context");
}

int cuda_context_hold(const struct memory_device *device, struct error *error)
{
	CUcontext context;

	return context_retain(device, &context, error);
}

void cuda_context_unhold(const struct memory_device *device)
{
	const struct cuda_driver *cuda = cuda_opened();

	if (cuda)
		cuda->cuDevicePrimaryCtxRelease_v2(device->ordinal);
}

void cuda_context_background(const struct memory_device *device)
{
	const struct cuda_driver *cuda = cuda_opened();
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	(void)device;
	if (cuda)
		cuda->cuThreadExchangeStreamCaptureMode(&mode);
}

int cuda_context_enter(const struct memory_device *device, struct error *error)
{
	CUcontext context;
	CUresult result;
	int r = context_retain(device, &context, error);

	if (r < 0)
		return r;
	result = cuda_opened()->cuCtxPushCurrent_v2(context);
	if (result == CUDA_SUCCESS)
		return 0;
	cuda_context_unhold(device);
	return cuda_fail(result, -EIO, error, "entering the CUDA context");
}

void cuda_context_leave(const struct memory_device *device)
{
	const struct cuda_driver *cuda = cuda_opened();
	CUcontext context;

	if (cuda)
		cuda->cuCtxPopCurrent_v2(&context);
	cuda_context_unhold(device);
}

static int context_captured(struct error *error)
{
	return error_set(error, -EBUSY, "end the capture first", "a stream of this process is being captured");
}

static int context_synchronise(const struct cuda_driver *cuda, struct error *error)
{
	CUstreamCaptureStatus status;
	CUresult result;

	/* To wait for a context makes it lose every capture. This question does not, but it is answered for streams
	 * only that go with the default one. */
	result = cuda->cuStreamIsCapturing(CU_STREAM_LEGACY, &status);
	if (result != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
		result = cuda->cuCtxSynchronize();
	if (result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_CAPTURED_EVENT)
		return context_captured(error);
	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, -EIO, error, "waiting for the GPU");
}

static int context_idle_on(const struct memory_device *device, struct error *error)
{
	const struct cuda_driver *cuda;
	CUcontext context = NULL;
	CUdevice current;
	unsigned flags;
	int active = 0, r = cuda_open(&cuda, error);

	if (r < 0)
		return r;
	/* The caller's own context, where it is one of this device besides the primary. */
	if (cuda->cuCtxGetCurrent(&context) == CUDA_SUCCESS && context &&
	    cuda->cuCtxGetDevice(&current) == CUDA_SUCCESS && current == device->ordinal)
		r = context_synchronise(cuda, error);
	if (r < 0)
		return r;
	if (cuda->cuDevicePrimaryCtxGetState(device->ordinal, &flags, &active) != CUDA_SUCCESS || !active)
		return 0;
	r = cuda_context_enter(device, error);
	if (r < 0)
		return r;
	r = context_synchronise(cuda, error);
	cuda_context_leave(device);
	return r;
}

/* Of several that fail, one that is captured counts most: memory stays then. */
int cuda_context_idle(const struct memory_device *device, struct error *error)
{
	int r = capture_is_told() ? context_captured(error) : context_idle_on(device, error);

	for (unsigned i = 0; i < device->peer_count && r != -EBUSY; i++) {
		const struct memory_device peer = {.ops = device->ops, .ordinal = device->peers[i]};
		struct error why;
		int waited = context_idle_on(&peer, &why);

		if (waited < 0 && (r == 0 || waited == -EBUSY))
			r = error_set(error, waited, why.detail, "%s", why.message);
	}
	return r;
}
