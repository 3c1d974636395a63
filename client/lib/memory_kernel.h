/* What kernels do on the GPU: the rows `digests`, `digests_prepare` and `compare` of memory_ops. */
#ifndef GPUWM_LIB_MEMORY_KERNEL_H
#define GPUWM_LIB_MEMORY_KERNEL_H

#include "digesting.h"

int kernel_digests(struct digesting *work);
void kernel_load(const struct memory_device *device);

/* Addresses and bytes are multiples of 16. */
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
