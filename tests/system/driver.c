/* What a test's child needs of the driver itself. */
#include "harness.h"

#ifdef GPUWM_CUDA

#include <cuda.h>
#include <dlfcn.h>

/* By dlopen, as the test's program must start without a driver. */
#define DRIVER(name) ((__typeof__(name) *)dlsym(driver, #name))

void child_keeps_context(void)
{
	void *driver = backend() == BACKEND_HOST ? NULL : dlopen("libcuda.so.1", RTLD_NOW);
	CUcontext context;
	CUdevice device;

	if (backend() == BACKEND_HOST)
		return;
	CHILD_ASSERT(driver && DRIVER(cuInit)(0) == CUDA_SUCCESS);
	CHILD_ASSERT(DRIVER(cuDeviceGet)(&device, 0) == CUDA_SUCCESS);
	CHILD_ASSERT(DRIVER(cuDevicePrimaryCtxRetain)(&context, device) == CUDA_SUCCESS);
}

#else

void child_keeps_context(void)
{
}

#endif
