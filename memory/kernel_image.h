/* The kernels of memory/kernels, compiled into the library. */
#ifndef GPUWM_LIB_KERNEL_IMAGE_H
#define GPUWM_LIB_KERNEL_IMAGE_H

/* Images for cuModuleLoadData, the best first: a fatbin with code for several GPUs, then PTX of an old version, which every driver
 * since 470 compiles for every GPU since Turing. NULL ends the list; all are NULL if the library was built without nvcc. */
#define KERNEL_IMAGES 2
extern const void *const kernel_images[KERNEL_IMAGES + 1];

#endif
