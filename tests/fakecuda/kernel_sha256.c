/* SHA-256 as the kernel computes it, thread by thread, on copies of the memory. */
#include "driver.h"

#include <stdlib.h>

#pragma GCC diagnostic ignored "-Wunknown-pragmas" /* unroll */
#define __device__
#define __forceinline__ inline

typedef struct {
	uint32_t x, y, z, w;
} uint4;

static uint4 load_block_vector(const uint4 *from)
{
	return *from;
}

static uint8_t load_byte(const uint8_t *from)
{
	return *from;
}

#include "../../memory/kernels/sha256_thread.h"

static CUresult sum_leaf(int ordinal, const struct sha256_leaf *leaf, struct sha256_sum *ret)
{
	uint8_t *copy = aligned_alloc(16, (leaf->bytes + 16) / 16 * 16);
	struct sha256_leaf there = {(uint64_t)(uintptr_t)copy, leaf->bytes};
	CUresult result = CUDA_SUCCESS;

	if (!copy)
		abort();
	if (leaf->bytes > 0)
		result = copy_out(&(struct stream_work){
			.from = leaf->address, .host = copy, .bytes = leaf->bytes, .ordinal = ordinal});
	if (result == CUDA_SUCCESS)
		*ret = sha256_of(&there);
	free(copy);
	return result;
}

CUresult kernel_sha256(const struct stream_work *work)
{
	CUresult result = CUDA_SUCCESS;

	for (uint64_t i = 0; result == CUDA_SUCCESS && i < work->value * SHA256_THREADS; i++) {
		struct sha256_leaf leaf;
		struct sha256_sum sum;
		CUdeviceptr to = work->to + i * sizeof(sum);

		result = copy_out(&(struct stream_work){.from = work->from + i * sizeof(leaf),
							.host = &leaf,
							.bytes = sizeof(leaf),
							.ordinal = work->ordinal});
		if (result == CUDA_SUCCESS && leaf.address % 16)
			result = CUDA_ERROR_MISALIGNED_ADDRESS;
		if (result == CUDA_SUCCESS)
			result = sum_leaf(work->ordinal, &leaf, &sum);
		if (result == CUDA_SUCCESS)
			result = copy_in(&(struct stream_work){.from = to,
							       .to = to,
							       .host = &sum,
							       .bytes = sizeof(sum),
							       .ordinal = work->ordinal});
	}
	return result;
}
