/* Digests by a kernel on the GPU. */
#ifndef GPUWM_LIB_MEMORY_KERNEL_H
#define GPUWM_LIB_MEMORY_KERNEL_H

#include "digesting.h"

/* Digests all spans by the kernel. Returns 0; 1 if there is no kernel to be had: then nothing was done, and the report's
 * note says why; or -errno. */
int kernel_digests(struct digesting *work);

#endif
