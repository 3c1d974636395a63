#include "digest.h"

#include <string.h>

#define KEY1 0x9E3779B97F4A7C15ull
#define KEY2 0xC2B2AE3D27D4EB4Full

static inline uint64_t multiply_halves(uint64_t x)
{
	return (x & 0xffffffff) * (x >> 32);
}

static inline uint64_t rotate32(uint64_t x)
{
	return x << 32 | x >> 32;
}

/* Sums words `first`, first + 1, and so on. */
static struct digest_sum sum_portable(uint64_t first, const uint8_t *data, size_t count)
{
	uint64_t key1 = (first + 1) * KEY1, key2 = (first + 1) * KEY2, a = 0, b = 0;

	for (size_t i = 0; i < count; i++, key1 += KEY1, key2 += KEY2) {
		uint64_t word;

		memcpy(&word, data + 8 * i, 8);
		a += word + multiply_halves(word ^ key1);
		b += rotate32(word) + multiply_halves(word ^ key2);
	}
	return (struct digest_sum){a, b};
}

#ifdef __x86_64__
#include <immintrin.h>

/* Does the same, `lanes` words at a time and two such vectors a turn. In multiply_halves compilers
 * do not recognise a product of halves: they emit one of whole words, which takes three
 * instructions with AVX-512 and eight with AVX2. So this names the one instruction. */
#define VECTOR_KERNEL(name, isa, vector, lanes, multiply, swap)                                                \
	__attribute__((optimize("O3"), target(isa))) static struct digest_sum name(                            \
		uint64_t first, const uint8_t *data, size_t count)                                             \
	{                                                                                                      \
		typedef uint64_t words __attribute__((vector_size(8 * (lanes)), may_alias));                   \
		size_t whole = count - count % (2 * (lanes));                                                  \
		struct digest_sum sum = sum_portable(first + whole, data + 8 * whole, count - whole);          \
		words key1[2], key2[2], a[2] = {0}, b[2] = {0};                                                \
		for (unsigned i = 0; i < 2 * (lanes); i++) {                                                   \
			key1[i / (lanes)][i % (lanes)] = (first + 1 + i) * KEY1;                               \
			key2[i / (lanes)][i % (lanes)] = (first + 1 + i) * KEY2;                               \
		}                                                                                              \
		for (size_t i = 0; i < whole; i += 2 * (lanes)) {                                              \
			_Pragma("GCC unroll 2") for (unsigned k = 0; k < 2; k++)                               \
			{                                                                                      \
				words word, x, y;                                                              \
				memcpy(&word, data + 8 * (i + k * (lanes)), sizeof(word));                     \
				x = word ^ key1[k];                                                            \
				y = word ^ key2[k];                                                            \
				a[k] += word + (words)multiply((vector)x, (vector)(x >> 32));                  \
				b[k] += (words)swap((vector)word, 0xb1) +                                      \
					(words)multiply((vector)y, (vector)(y >> 32));                         \
				key1[k] += 2 * (lanes)*KEY1;                                                   \
				key2[k] += 2 * (lanes)*KEY2;                                                   \
			}                                                                                      \
		}                                                                                              \
		for (unsigned i = 0; i < (lanes); i++) {                                                       \
			sum.a += a[0][i] + a[1][i];                                                            \
			sum.b += b[0][i] + b[1][i];                                                            \
		}                                                                                              \
		return sum;                                                                                    \
	}
VECTOR_KERNEL(sum_avx2, "avx2", __m256i, 4, _mm256_mul_epu32, _mm256_shuffle_epi32)
VECTOR_KERNEL(sum_avx512, "avx512f", __m512i, 8, _mm512_mul_epu32, _mm512_shuffle_epi32)
#endif

size_t digest_kernels(struct digest_kernel kernels[DIGEST_KERNELS_MAX])
{
	size_t count = 0;

#ifdef __x86_64__
	if (__builtin_cpu_supports("avx512f"))
		kernels[count++] = (struct digest_kernel){"avx512", sum_avx512};
	if (__builtin_cpu_supports("avx2"))
		kernels[count++] = (struct digest_kernel){"avx2", sum_avx2};
#endif
	kernels[count++] = (struct digest_kernel){"portable", sum_portable};
	return count;
}

void digest_update(struct digest_sum *sum, uint64_t offset, const void *data, size_t bytes)
{
	static digest_kernel_fn *best;
	digest_kernel_fn *fn = __atomic_load_n(&best, __ATOMIC_RELAXED);
	uint8_t last[8] = {0};
	struct digest_sum part;

	if (!fn) {
		struct digest_kernel kernels[DIGEST_KERNELS_MAX];

		digest_kernels(kernels);
		fn = kernels[0].sum;
		__atomic_store_n(&best, fn, __ATOMIC_RELAXED);
	}
	part = fn(offset / 8, data, bytes / 8);
	digest_merge(sum, &part);
	if (bytes % 8) {
		memcpy(last, (const uint8_t *)data + bytes / 8 * 8, bytes % 8);
		part = sum_portable(offset / 8 + bytes / 8, last, 1);
		digest_merge(sum, &part);
	}
}

void digest_update_shared(struct digest_sum *sum, uint64_t offset, const void *data, size_t bytes)
{
	struct digest_sum own = {0};

	digest_update(&own, offset, data, bytes);
	__atomic_fetch_add(&sum->a, own.a, __ATOMIC_RELAXED);
	__atomic_fetch_add(&sum->b, own.b, __ATOMIC_RELAXED);
}

void digest_merge(struct digest_sum *sum, const struct digest_sum *other)
{
	sum->a += other->a;
	sum->b += other->b;
}

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 33;
}

struct digest digest_final(const struct digest_sum *sum, uint64_t total_bytes)
{
	uint64_t words[2] = {mix(sum->a ^ total_bytes), mix(sum->b ^ rotate32(total_bytes))};
	struct digest digest;

	memcpy(digest.bytes, words, sizeof digest.bytes);
	return digest;
}

struct digest digest_of(const void *data, size_t bytes)
{
	struct digest_sum sum = {0};

	digest_update(&sum, 0, data, bytes);
	return digest_final(&sum, bytes);
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
	return !memcmp(a->bytes, b->bytes, sizeof a->bytes);
}
