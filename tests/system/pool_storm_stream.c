/* Streams in the storm over a pool. */
#include "pool_storm.h"

#ifdef GPUWM_CUDA

#include <cuda.h>
#include <dlfcn.h>

static void *driver;
#define DRIVER(name) ((__typeof__(name) *)dlsym(driver, #name))

void *pool_stream_new(void)
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

void pool_stream_wait(void *stream)
{
	if (stream)
		CHILD_ASSERT(DRIVER(cuStreamSynchronize)(stream) == CUDA_SUCCESS);
}

#else

void *pool_stream_new(void)
{
	return NULL;
}

void pool_stream_wait(void *stream)
{
	(void)stream;
}

#endif
