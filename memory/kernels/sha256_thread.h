/* What one thread of the kernel gpuwm_sha256 does: SHA-256 (FIPS 180-4) of a leaf. C and CUDA: digest.cu makes the kernel of it, the tests run
 * it on the CPU. Who includes it has defined __device__ and __forceinline__ where it is no kernel, uint4, and, for aligned addresses:
 *
 *   uint4 load_block_vector(const uint4 *), uint8_t load_byte(const uint8_t *)
 *
 * Bound by the arithmetic: some 2,000 instructions for a block of 64 bytes, each after the one before. What counts is that all of a block stays
 * in registers, and that the next block is on its way meanwhile. */
#ifndef GPUWM_LIB_KERNELS_SHA256_THREAD_H
#define GPUWM_LIB_KERNELS_SHA256_THREAD_H

#include "pieces.h"

#define SHA256_BLOCK 64

struct sha256_block {
	uint32_t words[16];
};

static __device__ __forceinline__ uint32_t sha256_rotate(uint32_t x, int bits)
{
	return x >> bits | x << (32 - bits);
}

static __device__ __forceinline__ uint32_t sha256_swap(uint32_t x)
{
	return x << 24 | (x & 0xff00) << 8 | (x >> 8 & 0xff00) | x >> 24;
}

/* Replaces the oldest of the last 16 words of the schedule by the next one. */
static __device__ __forceinline__ uint32_t sha256_next(uint32_t words[16], int i)
{
	uint32_t x = words[(i + 1) & 15], y = words[(i + 14) & 15];

	words[i & 15] += (sha256_rotate(x, 7) ^ sha256_rotate(x, 18) ^ x >> 3) + words[(i + 9) & 15] +
			 (sha256_rotate(y, 17) ^ sha256_rotate(y, 19) ^ y >> 10);
	return words[i & 15];
}

static __device__ __forceinline__ void sha256_round(uint32_t s[8], uint32_t word)
{
	uint32_t t = s[7] + (sha256_rotate(s[4], 6) ^ sha256_rotate(s[4], 11) ^ sha256_rotate(s[4], 25)) +
		     ((s[4] & s[5]) ^ (~s[4] & s[6])) + word;
	uint32_t u = (sha256_rotate(s[0], 2) ^ sha256_rotate(s[0], 13) ^ sha256_rotate(s[0], 22)) +
		     ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));

	s[7] = s[6];
	s[6] = s[5];
	s[5] = s[4];
	s[4] = s[3] + t;
	s[3] = s[2];
	s[2] = s[1];
	s[1] = s[0];
	s[0] = t + u;
}

/* The block's words are in the order of SHA-256, and used up. */
static __device__ __forceinline__ void sha256_compress(uint32_t state[8], struct sha256_block *block)
{
	const uint32_t keys[64] = {
		0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
		0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
		0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
		0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
		0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
		0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
		0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
		0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
	};
	uint32_t s[8];

#pragma unroll
	for (int i = 0; i < 8; i++)
		s[i] = state[i];
#pragma unroll
	for (int i = 0; i < 64; i++)
		sha256_round(s, keys[i] + (i < 16 ? block->words[i & 15] : sha256_next(block->words, i)));
#pragma unroll
	for (int i = 0; i < 8; i++)
		state[i] += s[i];
}

static __device__ __forceinline__ void sha256_load(struct sha256_block *block, const uint4 *from)
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		uint4 v = load_block_vector(from + i);

		block->words[4 * i] = v.x;
		block->words[4 * i + 1] = v.y;
		block->words[4 * i + 2] = v.z;
		block->words[4 * i + 3] = v.w;
	}
}

/* Whole blocks. The next one is loaded before the one that is there is worked on. */
static __device__ __forceinline__ void sha256_blocks(uint32_t state[8], const uint4 *from, uint64_t count)
{
	struct sha256_block block, next;

	if (count == 0)
		return;
	sha256_load(&next, from);
	for (uint64_t i = 1; i <= count; i++) {
#pragma unroll
		for (int k = 0; k < 16; k++)
			block.words[k] = sha256_swap(next.words[k]);
		if (i < count)
			sha256_load(&next, from + i * 4);
		sha256_compress(state, &block);
	}
}

/* The byte at `at` of a message's last blocks: what is left of it, a one bit, zeros. */
static __device__ __forceinline__ uint32_t sha256_last_byte(const uint8_t *rest, uint32_t left, uint32_t at)
{
	return at < left ? load_byte(rest + at) : at == left ? 0x80 : 0;
}

/* The bytes behind the whole blocks, fewer than SHA256_BLOCK, and the message's length: one or two blocks. */
static __device__ __forceinline__ void sha256_end(uint32_t state[8], const uint8_t *rest, uint64_t bytes)
{
	uint32_t left = bytes % SHA256_BLOCK, blocks = left < SHA256_BLOCK - 8 ? 1 : 2;

	for (uint32_t i = 0; i < blocks; i++) {
		struct sha256_block block;

#pragma unroll
		for (int k = 0; k < 16; k++) {
			uint32_t at = i * SHA256_BLOCK + 4 * k;

			block.words[k] = sha256_last_byte(rest, left, at) << 24 |
					 sha256_last_byte(rest, left, at + 1) << 16 |
					 sha256_last_byte(rest, left, at + 2) << 8 |
					 sha256_last_byte(rest, left, at + 3);
		}
		if (i + 1 == blocks) {
			block.words[14] = (uint32_t)(bytes >> 29);
			block.words[15] = (uint32_t)(bytes << 3);
		}
		sha256_compress(state, &block);
	}
}

static __device__ __forceinline__ struct sha256_sum sha256_of(const struct sha256_leaf *leaf)
{
	uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
			     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
	uint64_t blocks = leaf->bytes / SHA256_BLOCK;
	struct sha256_sum sum;

	sha256_blocks(state, (const uint4 *)(uintptr_t)leaf->address, blocks);
	sha256_end(state, (const uint8_t *)(uintptr_t)leaf->address + blocks * SHA256_BLOCK, leaf->bytes);
#pragma unroll
	for (int i = 0; i < 32; i++)
		sum.bytes[i] = (uint8_t)(state[i / 4] >> (24 - i % 4 * 8));
	return sum;
}

#endif
