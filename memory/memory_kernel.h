/* What kernels do on the GPU: the rows `digests`, `digests_prepare`, `compare` and `hasher_*` of memory_ops. */
#ifndef GPUWM_LIB_MEMORY_KERNEL_H
#define GPUWM_LIB_MEMORY_KERNEL_H

#include "digesting.h"

int kernel_digests(struct digesting *work);
void kernel_load(const struct memory_device *device);

/* Addresses and bytes are multiples of 16. */
int kernel_compare(const struct memory_device *device, const struct memory_pair *pair,
		   memory_progress_fn *progress, void *user_data, bool *ret_equal, struct error *error);

int kernel_hasher_open(const struct memory_device *device, size_t most, struct memory_hasher **ret,
		       struct error *error);
int kernel_hasher_run(struct memory_hasher *hasher, const struct memory_span *pieces, size_t count,
		      uint8_t (*ret_sums)[MEMORY_SHA256_BYTES], struct error *error);
void kernel_hasher_close(struct memory_hasher *hasher);

/* The kernels of the module, in the current context. */
struct cuda_driver;
struct kernels {
	void *digest, *compare, *sha256; /* CUfunction */
};
/* Loads the module once for each context. Fails with -ENOTSUP if the program was built without nvcc, or the driver takes none of the
 * images, and with -EIO. */
int kernels_load(const struct cuda_driver *cuda, int ordinal, struct kernels *ret, struct error *error);

#endif
