/* The variants of the digest's inner loop, for digest.c and its test. */
#ifndef GPUWM_PROTO_DIGEST_KERNELS_H
#define GPUWM_PROTO_DIGEST_KERNELS_H

#include "digest.h"

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
