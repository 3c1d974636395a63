/* SHA-256 of many pieces of a GPU's memory by a kernel: a thread for each. */
#include "memory_internal.h"

#include "cuda.h"
#include "kernels/pieces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct memory_hasher {
	const struct cuda_driver *cuda;
	CUfunction kernel;
	CUstream stream;
	CUdeviceptr leaves, sums; /* one allocation: it begins with the leaves */
	size_t room; /* how many leaves there can be, a multiple of SHA256_THREADS */
	struct sha256_leaf *list;
};

static size_t whole_blocks(size_t count)
{
	return (count + SHA256_THREADS - 1) / SHA256_THREADS * SHA256_THREADS;
}

void kernel_hasher_close(struct memory_hasher *hasher)
{
	if (hasher->stream) {
		hasher->cuda->cuStreamSynchronize(hasher->stream);
		hasher->cuda->cuStreamDestroy_v2(hasher->stream);
	}
	if (hasher->leaves)
		hasher->cuda->cuMemFree_v2(hasher->leaves);
	free(hasher->list);
	free(hasher);
}

/* 0, 1 (there is no room on the GPU) or -errno. */
static int hasher_start(struct memory_hasher *hasher, struct error *error)
{
	const struct cuda_driver *cuda = hasher->cuda;
	const size_t leaf_bytes = hasher->room * sizeof(struct sha256_leaf);
	CUresult result;

	hasher->list = calloc(hasher->room, sizeof(*hasher->list));
	if (!hasher->list)
		return error_set(error, -ENOMEM, NULL, "no room for the list of what a GPU hashes");
	result = cuda->cuMemAlloc_v2(&hasher->leaves, leaf_bytes + hasher->room * sizeof(struct sha256_sum));
	hasher->sums = hasher->leaves + leaf_bytes;
	if (result == CUDA_SUCCESS)
		result = cuda->cuStreamCreate(&hasher->stream, CU_STREAM_NON_BLOCKING);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		return 1;
	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, -EIO, error, "preparing SHA-256 on the GPU");
}

int kernel_hasher_open(const struct memory_device *device, size_t most, struct memory_hasher **ret,
		       struct error *error)
{
	const struct cuda_driver *cuda;
	struct memory_hasher *hasher;
	struct kernels kernels;
	int r = cuda_open(&cuda, error);

	if (r < 0)
		return r;
	if (kernels_load(cuda, device->ordinal, &kernels, NULL) < 0)
		return 1;
	hasher = calloc(1, sizeof(*hasher));
	if (!hasher)
		return error_set(error, -ENOMEM, NULL, "no room for the list of what a GPU hashes");
	hasher->cuda = cuda;
	hasher->kernel = kernels.sha256;
	hasher->room = whole_blocks(most);
	r = hasher_start(hasher, error);
	if (r == 0)
		*ret = hasher;
	else
		kernel_hasher_close(hasher);
	return r;
}

/* Has the kernel hash the first `count` leaves of the list, and waits for their sums. It waits for the kernel before it copies: a copy to
 * memory that is not registered would wait inside the driver, where other threads may need it. */
static CUresult hasher_launch(struct memory_hasher *hasher, size_t count, void *ret_sums)
{
	const struct cuda_driver *cuda = hasher->cuda;
	unsigned blocks = (unsigned)(whole_blocks(count) / SHA256_THREADS);
	void *arguments[] = {&hasher->leaves, &hasher->sums};
	CUresult result = cuda->cuMemcpyHtoDAsync_v2(
		hasher->leaves, hasher->list, whole_blocks(count) * sizeof(*hasher->list), hasher->stream);

	if (result == CUDA_SUCCESS)
		result = cuda->cuLaunchKernel(hasher->kernel, blocks, 1, 1, SHA256_THREADS, 1, 1, 0,
					      hasher->stream, arguments, NULL);
	if (result == CUDA_SUCCESS)
		result = cuda->cuStreamSynchronize(hasher->stream);
	if (result == CUDA_SUCCESS)
		result = cuda->cuMemcpyDtoHAsync_v2(ret_sums, hasher->sums, count * sizeof(struct sha256_sum),
						    hasher->stream);
	return result == CUDA_SUCCESS ? cuda->cuStreamSynchronize(hasher->stream) : result;
}

int kernel_hasher_run(struct memory_hasher *hasher, const struct memory_span *pieces, size_t count,
		      uint8_t (*ret_sums)[MEMORY_SHA256_BYTES], struct error *error)
{
	CUresult result;

	if (count > hasher->room)
		return error_set(error, -EINVAL, NULL, "%zu pieces are to be hashed, and there is room for %zu",
				 count, hasher->room);
	if (count == 0)
		return 0;
	memset(hasher->list, 0, whole_blocks(count) * sizeof(*hasher->list));
	for (size_t i = 0; i < count; i++)
		hasher->list[i] = (struct sha256_leaf){(uint64_t)(uintptr_t)pieces[i].address, pieces[i].bytes};
	result = hasher_launch(hasher, count, ret_sums);
	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, -EIO, error, "computing SHA-256 on the GPU");
}
