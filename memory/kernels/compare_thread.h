/* What one thread of the kernel gpuwm_compare does (pieces.h); the tests run it on the CPU. The includer defines __device__ and
 * __forceinline__ where it is no kernel, uint4, and load_vector, which reads 16 bytes. */
#ifndef GPUWM_LIB_KERNELS_COMPARE_THREAD_H
#define GPUWM_LIB_KERNELS_COMPARE_THREAD_H

#include "pieces.h"

/* Nonzero: one of the thread's bytes differs. */
static __device__ __forceinline__ uint32_t thread_differs(const struct compare_piece *piece, uint32_t thread)
{
	const uint4 *a = (const uint4 *)(uintptr_t)piece->a, *b = (const uint4 *)(uintptr_t)piece->b;
	uint32_t bits = 0;

	for (uint64_t i = thread; i < piece->bytes / 16; i += COMPARE_THREADS) {
		uint4 x = load_vector(a + i), y = load_vector(b + i);

		bits |= (x.x ^ y.x) | (x.y ^ y.y) | (x.z ^ y.z) | (x.w ^ y.w);
	}
	return bits;
}

#endif
