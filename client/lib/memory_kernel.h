/* Digests by a kernel on the GPU: the rows `digests` and `digests_prepare` of memory_ops. */
#ifndef GPUWM_LIB_MEMORY_KERNEL_H
#define GPUWM_LIB_MEMORY_KERNEL_H

#include "digesting.h"

int kernel_digests(struct digesting *work);
void kernel_load(const struct memory_device *device);

#endif
