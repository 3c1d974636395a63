/* The 128-bit digest of bytes: a sum of mixed 8-byte words with their
 * positions, so that threads, chunks and GPU blocks may go in any order.
 *
 * With w the little-endian word number i (the last one padded with zeros), all
 * arithmetic modulo 2^64, and m(x) = (x mod 2^32) * (x >> 32):
 *
 *   k1 = (i + 1) * 0x9E3779B97F4A7C15        k2 = (i + 1) * 0xC2B2AE3D27D4EB4F
 *   a += w + m(w ^ k1)                       b += rotl(w, 32) + m(w ^ k2)
 *
 * and at the end, with n the number of bytes:
 *   a = mix(a ^ n), b = mix(b ^ rotl(n, 32)), mix(x): the finaliser of MurmurHash3.
 * The digest is a then b, little-endian.
 *
 * 32 x 32 -> 64 bit multiplications are what CPUs vectorise (as in XXH3). It
 * finds damage and stray writes; it is not a signature.
 *
 * Lives in proto because the index is digested by it, and proto knows nobody.
 */
#ifndef GPUWM_PROTO_DIGEST_H
#define GPUWM_PROTO_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct digest_sum {
	uint64_t a, b;
};

struct digest {
	uint8_t bytes[16];
};

/* Adds `bytes` bytes that begin `offset` bytes into the digested data. offset is a multiple of 8,
 * and so is `bytes`, unless these are the last bytes. The function uses the widest vectors that the
 * CPU has. Threads may call it at once on different sums. */
void digest_update(struct digest_sum *sum, uint64_t offset, const void *data, size_t bytes);

/* The same, to a sum that other threads add to at the same time, with this function. */
void digest_update_shared(struct digest_sum *sum, uint64_t offset, const void *data, size_t bytes);

/* Adds `other` to `sum`. So chunks may be digested in any order. */
void digest_merge(struct digest_sum *sum, const struct digest_sum *other);

struct digest digest_final(const struct digest_sum *sum, uint64_t total_bytes);

struct digest digest_of(const void *data, size_t bytes);
bool digest_equal(const struct digest *a, const struct digest *b);

/* ---- the variants of its inner loop, for digest.c, its test and its benchmark ---- */

#define DIGEST_KERNELS_MAX 3

/* Returns the sum of `count` whole words, the first of which is word number `first`. */
typedef struct digest_sum digest_kernel_fn(uint64_t first, const uint8_t *data, size_t count);

struct digest_kernel {
	const char *name;
	digest_kernel_fn *sum;
};

/* Sets `kernels` to the variants that this CPU can run, the widest first. Returns their number, at
 * least 1. */
size_t digest_kernels(struct digest_kernel kernels[DIGEST_KERNELS_MAX]);

#endif
