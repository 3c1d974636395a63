/* The work of one thread of the kernel gpuwm_digest. C and CUDA: digest.cu makes the kernel of it, a unit test
 * runs it on the CPU. Who includes it has defined, for aligned addresses of device memory:
 *
 *   uint4 load_vector(const uint4 *), uint64_t load_word(const uint64_t *), uint8_t load_byte(const uint8_t *)
 *
 * Memory bound by far: 18.6 instructions for a word (SASS of sm_90), two of them wide multiplications. What counts is
 * that each thread has DEPTH loads of 16 bytes on their way, and few registers, so that many threads do.
 */
#ifndef GPUWM_LIB_KERNELS_DIGEST_THREAD_H
#define GPUWM_LIB_KERNELS_DIGEST_THREAD_H

#include "pieces.h"

#define KEY1 0x9E3779B97F4A7C15ull
#define KEY2 0xC2B2AE3D27D4EB4Full
#define DEPTH 4

struct partial {
	uint64_t a, b;
	uint32_t bits;
};

static __device__ __forceinline__ void add_word(struct partial *sum, uint32_t low, uint32_t high, uint64_t key1,
						uint64_t key2)
{
	uint32_t x = low ^ (uint32_t)key1, y = low ^ (uint32_t)key2;

	sum->a += (uint64_t)x * (high ^ (uint32_t)(key1 >> 32));
	sum->b += (uint64_t)y * (high ^ (uint32_t)(key2 >> 32));
	sum->a += (uint64_t)high << 32 | low;
	sum->b += (uint64_t)low << 32 | high;
	sum->bits |= low | high;
}

/* Whole vectors of two words, of which the first is word `first`. Thread t takes each DIGEST_THREADS-th. */
static __device__ __forceinline__ void add_vectors(struct partial *sum, const uint4 *vectors, uint64_t first,
						   uint32_t count, uint32_t thread)
{
	uint64_t key1 = (first + 2 * thread + 1) * KEY1, key2 = (first + 2 * thread + 1) * KEY2;
	uint32_t i = thread;

	for (; i + (DEPTH - 1) * DIGEST_THREADS < count; i += DEPTH * DIGEST_THREADS) {
		uint4 v[DEPTH];

#pragma unroll
		for (int k = 0; k < DEPTH; k++)
			v[k] = load_vector(vectors + i + k * DIGEST_THREADS);
#pragma unroll
		for (int k = 0; k < DEPTH; k++) {
			add_word(sum, v[k].x, v[k].y, key1, key2);
			add_word(sum, v[k].z, v[k].w, key1 + KEY1, key2 + KEY2);
			key1 += 2 * DIGEST_THREADS * KEY1;
			key2 += 2 * DIGEST_THREADS * KEY2;
		}
	}
	for (; i < count; i += DIGEST_THREADS) {
		uint4 v = load_vector(vectors + i);

		add_word(sum, v.x, v.y, key1, key2);
		add_word(sum, v.z, v.w, key1 + KEY1, key2 + KEY2);
		key1 += 2 * DIGEST_THREADS * KEY1;
		key2 += 2 * DIGEST_THREADS * KEY2;
	}
}

/* Whole words at any address: each is put together from the aligned ones that hold its bytes, no others. */
static __device__ __forceinline__ void add_words(struct partial *sum, uint64_t address, uint64_t first,
						 uint32_t count, uint32_t thread)
{
	const uint64_t *words = (const uint64_t *)(address & ~7ull);
	uint64_t key1 = (first + thread + 1) * KEY1, key2 = (first + thread + 1) * KEY2;
	uint32_t shift = 8 * (uint32_t)(address & 7);

#pragma unroll 4
	for (uint32_t i = thread; i < count; i += DIGEST_THREADS) {
		uint64_t word = load_word(words + i);

		if (shift)
			word = word >> shift | load_word(words + i + 1) << (64 - shift);
		add_word(sum, (uint32_t)word, (uint32_t)(word >> 32), key1, key2);
		key1 += DIGEST_THREADS * KEY1;
		key2 += DIGEST_THREADS * KEY2;
	}
}

/* Up to 8 bytes, one by one: what is left at the end of a piece. */
static __device__ __forceinline__ void add_rest(struct partial *sum, uint64_t address, uint64_t index,
						uint32_t bytes)
{
	uint64_t word = 0;

	for (uint32_t i = 0; i < bytes && i < 8; i++)
		word |= (uint64_t)load_byte((const uint8_t *)address + i) << 8 * i;
	add_word(sum, (uint32_t)word, (uint32_t)(word >> 32), (index + 1) * KEY1, (index + 1) * KEY2);
}

/* What one thread of the piece's block adds. */
static __device__ __forceinline__ struct partial thread_sum(const struct digest_piece *piece, uint32_t thread)
{
	struct partial sum = {0, 0, 0};
	uint32_t done, rest;

	if (piece->address % 16 == 0) {
		done = piece->bytes & ~15u;
		add_vectors(&sum, (const uint4 *)piece->address, piece->first, done / 16, thread);
	} else {
		done = piece->bytes & ~7u;
		add_words(&sum, piece->address, piece->first, done / 8, thread);
	}
	rest = done + 8 * thread;
	if (rest < piece->bytes)
		add_rest(&sum, piece->address + rest, piece->first + rest / 8, piece->bytes - rest);
	return sum;
}

#endif
