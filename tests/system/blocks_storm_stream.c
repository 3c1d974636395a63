/* Copies in streams in the storm over blocks. */
#include "blocks_storm.h"

#ifdef GPUWM_CUDA

#include <cuda.h>
#include <dlfcn.h>

#define DRIVER(name) ((__typeof__(name) *)dlsym(driver(), #name))

static void *driver(void)
{
	static void *loaded;

	if (!loaded)
		loaded = dlopen("libcuda.so.1", RTLD_NOW);
	CHILD_ASSERT(loaded);
	return loaded;
}

uint64_t *blocks_staging_new(unsigned blocks)
{
	void *staging;

	if (backend() == BACKEND_HOST)
		return NULL;
	CHILD_ASSERT(DRIVER(cuMemHostAlloc)(&staging, blocks * BLOCKS_BYTES, 0) == CUDA_SUCCESS);
	return staging;
}

void blocks_copy_in(void *stream, void *block, const uint64_t *staging)
{
	__typeof__(cuMemcpyHtoDAsync_v2) *copy = DRIVER(cuMemcpyHtoDAsync_v2);

	CHILD_ASSERT(copy((CUdeviceptr)block, staging, BLOCKS_BYTES, stream) == CUDA_SUCCESS);
}

void blocks_copy_out(void *stream, uint64_t *staging, const void *block)
{
	__typeof__(cuMemcpyDtoHAsync_v2) *copy = DRIVER(cuMemcpyDtoHAsync_v2);

	CHILD_ASSERT(copy(staging, (CUdeviceptr)block, BLOCKS_BYTES, stream) == CUDA_SUCCESS);
}

#else

uint64_t *blocks_staging_new(unsigned blocks)
{
	(void)blocks;
	return NULL;
}

void blocks_copy_in(void *stream, void *block, const uint64_t *staging)
{
	(void)stream, (void)block, (void)staging;
}

void blocks_copy_out(void *stream, uint64_t *staging, const void *block)
{
	(void)stream, (void)block, (void)staging;
}

#endif
