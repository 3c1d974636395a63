/* What kernels do on the GPU: digests, and comparisons. */
#ifndef GPUWM_LIB_MEMORY_KERNEL_H
#define GPUWM_LIB_MEMORY_KERNEL_H

#include "digesting.h"

/* Digests all spans by the kernel. Returns 0; 1 if there is no kernel to be had: then nothing was done, and the report's
 * note says why; or -errno. */
int kernel_digests(struct digesting *work);

/* memory_compare by the kernel. Addresses and bytes are multiples of 16. Returns 0 and sets *ret_equal; 1 if there is no kernel to be
 * had: then nothing was done; the code of progress; or -errno. */
int kernel_compare(const struct memory_device *device, const struct memory_pair *pair,
		   memory_progress_fn *progress, void *user_data, bool *ret_equal, struct error *error);

/* The kernels of the module, in the current context. */
struct cuda_driver;
struct kernels {
	void *digest, *compare; /* CUfunction */
};
/* Loads the module once for each context. Fails with -ENOTSUP if the program was built without nvcc, or the driver takes none of the
 * images, and with -EIO. */
int kernels_load(const struct cuda_driver *cuda, int ordinal, struct kernels *ret, struct error *error);

#endif
