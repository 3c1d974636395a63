/* The digest of proto/index/digest.h over many pieces of memory: one block for each. The contract stands in
 * pieces.h, the arithmetic in digest_thread.h. And the comparison of memory (compare_thread.h) and
 * SHA-256 (sha256_thread.h), in the same module. */
#include "pieces.h"

/* Nobody writes the memory meanwhile, and nothing is read twice: past the first cache. */
static __device__ __forceinline__ uint4 load_vector(const uint4 *from)
{
	uint4 v;

	asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
	    : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
	    : "l"(from));
	return v;
}

static __device__ __forceinline__ uint64_t load_word(const uint64_t *from)
{
	return __ldg((const unsigned long long *)from);
}

static __device__ __forceinline__ uint8_t load_byte(const uint8_t *from)
{
	return __ldg(from);
}

/* A thread reads 64 bytes side by side in four steps: the first cache keeps them for it. */
static __device__ __forceinline__ uint4 load_block_vector(const uint4 *from)
{
	return __ldg(from);
}

#include "compare_thread.h"
#include "digest_thread.h"
#include "sha256_thread.h"

#define WARPS (DIGEST_THREADS / 32)

static __device__ __forceinline__ void add_partial(struct partial *sum, const struct partial *other)
{
	sum->a += other->a;
	sum->b += other->b;
	sum->bits |= other->bits;
}

/* The sum of a warp's 32 threads, in its first. */
static __device__ __forceinline__ void warp_sum(struct partial *sum)
{
#pragma unroll
	for (int distance = 16; distance > 0; distance /= 2) {
		struct partial other = {
			__shfl_down_sync(~0u, (unsigned long long)sum->a, distance),
			__shfl_down_sync(~0u, (unsigned long long)sum->b, distance),
			__shfl_down_sync(~0u, sum->bits, distance),
		};

		add_partial(sum, &other);
	}
}

extern "C" __global__ void __launch_bounds__(DIGEST_THREADS, 4)
	gpuwm_digest(const struct digest_piece *pieces, struct digest_slot *slots)
{
	__shared__ struct partial warps[WARPS];
	const struct digest_piece piece = pieces[blockIdx.x];
	struct digest_slot *slot = slots + piece.slot;
	struct partial sum = thread_sum(&piece, threadIdx.x);

	warp_sum(&sum);
	if (threadIdx.x % 32 == 0)
		warps[threadIdx.x / 32] = sum;
	__syncthreads();
	if (threadIdx.x > 0)
		return;
	for (int i = 1; i < WARPS; i++)
		add_partial(&sum, &warps[i]);
	atomicAdd((unsigned long long *)&slot->a, (unsigned long long)sum.a);
	atomicAdd((unsigned long long *)&slot->b, (unsigned long long)sum.b);
	if (sum.bits)
		atomicOr((unsigned long long *)&slot->bits, (unsigned long long)sum.bits);
}

extern "C" __global__ void __launch_bounds__(COMPARE_THREADS, 4)
	gpuwm_compare(const struct compare_piece *pieces, uint64_t *differs)
{
	const struct compare_piece piece = pieces[blockIdx.x];

	if (thread_differs(&piece, threadIdx.x))
		atomicOr((unsigned long long *)differs, 1ull);
}

extern "C" __global__ void __launch_bounds__(SHA256_THREADS)
	gpuwm_sha256(const struct sha256_leaf *leaves, struct sha256_sum *sums)
{
	const uint32_t number = blockIdx.x * SHA256_THREADS + threadIdx.x;
	const struct sha256_leaf leaf = leaves[number];

	sums[number] = sha256_of(&leaf);
}
