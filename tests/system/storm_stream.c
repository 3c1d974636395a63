/* Streams of actors in a storm. */
#include "storm.h"

#ifdef GPUWM_CUDA

#include <cuda.h>
#include <dlfcn.h>

static void *driver;
#define DRIVER(name) ((__typeof__(name) *)dlsym(driver, #name))

void *storm_stream_new(void)
{
	CUcontext context;
	CUstream stream;
	CUdevice device;

	if (backend() == BACKEND_HOST)
		return NULL;
	driver = dlopen("libcuda.so.1", RTLD_NOW);
	CHILD_ASSERT(driver && DRIVER(cuInit)(0) == CUDA_SUCCESS);
	CHILD_ASSERT(DRIVER(cuDeviceGet)(&device, 0) == CUDA_SUCCESS);
	CHILD_ASSERT(DRIVER(cuDevicePrimaryCtxRetain)(&context, device) == CUDA_SUCCESS);
	CHILD_ASSERT(DRIVER(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
	CHILD_ASSERT(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	return stream;
}

void storm_stream_wait(void *stream)
{
	if (stream)
		CHILD_ASSERT(DRIVER(cuStreamSynchronize)(stream) == CUDA_SUCCESS);
}

void *storm_pinned_new(size_t bytes)
{
	void *pinned;

	if (backend() == BACKEND_HOST)
		return NULL;
	CHILD_ASSERT(DRIVER(cuMemHostAlloc)(&pinned, bytes, 0) == CUDA_SUCCESS);
	return pinned;
}

void storm_copy_in(void *stream, void *to, const void *pinned, size_t bytes)
{
	__typeof__(cuMemcpyHtoDAsync_v2) *copy = DRIVER(cuMemcpyHtoDAsync_v2);

	CHILD_ASSERT(copy((CUdeviceptr)to, pinned, bytes, stream) == CUDA_SUCCESS);
}

void storm_copy_out(void *stream, void *pinned, const void *from, size_t bytes)
{
	__typeof__(cuMemcpyDtoHAsync_v2) *copy = DRIVER(cuMemcpyDtoHAsync_v2);

	CHILD_ASSERT(copy(pinned, (CUdeviceptr)from, bytes, stream) == CUDA_SUCCESS);
}

#else

void *storm_stream_new(void)
{
	return NULL;
}

void storm_stream_wait(void *stream)
{
	(void)stream;
}

void *storm_pinned_new(size_t bytes)
{
	(void)bytes;
	return NULL;
}

void storm_copy_in(void *stream, void *to, const void *pinned, size_t bytes)
{
	(void)stream, (void)to, (void)pinned, (void)bytes;
}

void storm_copy_out(void *stream, void *pinned, const void *from, size_t bytes)
{
	(void)stream, (void)pinned, (void)from, (void)bytes;
}

#endif
