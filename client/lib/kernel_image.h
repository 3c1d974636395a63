/* The kernels of client/lib/kernels as they were compiled into the library. */
#ifndef GPUWM_LIB_KERNEL_IMAGE_H
#define GPUWM_LIB_KERNEL_IMAGE_H

/* What cuModuleLoadData takes, the best first: a fatbin with the code of several GPUs, then PTX of an old version,
 * which every driver since 470 compiles for every GPU since Turing. NULL at the end; all NULL: this was built without nvcc. */
#define KERNEL_IMAGES 2
extern const void *const kernel_images[KERNEL_IMAGES + 1];

#endif
