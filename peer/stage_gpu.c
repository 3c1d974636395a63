#include "stage.h"

#include <errno.h>
#include <stdlib.h>

#ifdef GPUWM_CUDA
#include "../memory/cuda.h"

struct stage_gpu {
	CUdeviceptr memory;
	CUstream stream; /* its own: the default one has the copies of all threads, as of those that hash */
};

int stage_gpu_new(size_t bytes, struct stage_gpu **ret, struct error *error)
{
	const struct cuda_driver *cuda = cuda_opened();
	struct stage_gpu *gpu = calloc(1, sizeof(*gpu));
	CUresult result;

	if (!gpu)
		return error_set(error, -ENOMEM, NULL, "out of memory");
	result = cuda->cuMemAlloc_v2(&gpu->memory, bytes);
	if (result == CUDA_SUCCESS)
		result = cuda->cuStreamCreate(&gpu->stream, CU_STREAM_NON_BLOCKING);
	if (result != CUDA_SUCCESS) {
		stage_gpu_free(gpu);
		return cuda_fail(result, -EIO, error, "memory to send from a GPU");
	}
	*ret = gpu;
	return 0;
}

struct stage_gpu *stage_gpu_free(struct stage_gpu *gpu)
{
	if (gpu && gpu->stream)
		cuda_opened()->cuStreamDestroy_v2(gpu->stream);
	if (gpu && gpu->memory)
		cuda_opened()->cuMemFree_v2(gpu->memory);
	free(gpu);
	return NULL;
}

void *stage_gpu_at(const struct stage_gpu *gpu, size_t offset)
{
	return (void *)(gpu->memory + offset);
}

int stage_gpu_copy(const struct stage_gpu *gpu, void *to, const void *from, size_t bytes, struct error *error)
{
	const struct cuda_driver *cuda = cuda_opened();
	CUresult result = cuda->cuMemcpyDtoDAsync_v2((CUdeviceptr)to, (CUdeviceptr)from, bytes, gpu->stream);

	if (result == CUDA_SUCCESS)
		result = cuda->cuStreamSynchronize(gpu->stream);
	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, -EIO, error, "copying what is to be sent");
}

#else

int stage_gpu_new(size_t bytes, struct stage_gpu **ret, struct error *error)
{
	(void)bytes;
	(void)ret;
	return error_set(error, -ENOTSUP, NULL, "this gpuwm was built without CUDA");
}

struct stage_gpu *stage_gpu_free(struct stage_gpu *gpu)
{
	free(gpu);
	return NULL;
}

void *stage_gpu_at(const struct stage_gpu *gpu, size_t offset)
{
	(void)gpu;
	(void)offset;
	return NULL;
}

int stage_gpu_copy(const struct stage_gpu *gpu, void *to, const void *from, size_t bytes, struct error *error)
{
	(void)gpu;
	(void)to;
	(void)from;
	(void)bytes;
	return error_set(error, -ENOTSUP, NULL, "this gpuwm was built without CUDA");
}
#endif
