/* What the kernel gpuwm_sha256 takes. It is in the module of digest.cu; the library fills the list, and the stand-in driver of the tests
 * computes the same.
 *
 *   void gpuwm_sha256(const struct sha256_leaf *leaves, struct sha256_sum *sums)
 *
 * in one dimension: a block of SHA256_THREADS threads, each of which has a leaf, no dynamic shared memory. So the list has a multiple of
 * SHA256_THREADS leaves: the last ones may be empty. Both arrays lie in device memory, aligned to 16 bytes.
 */
#ifndef GPUWM_LIB_KERNELS_SHA256_LEAF_H
#define GPUWM_LIB_KERNELS_SHA256_LEAF_H

#include <stdint.h>

#define SHA256_KERNEL "gpuwm_sha256"
#define SHA256_THREADS 32 /* one warp: a few leaves are on as many processors as there are */

/* The address is a multiple of 16; any number of bytes. */
struct sha256_leaf {
	uint64_t address;
	uint64_t bytes;
};

struct sha256_sum {
	uint8_t bytes[32];
};

#endif
