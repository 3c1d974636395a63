#include "memory_internal.h"

#ifdef GPUWM_KERNELS /* the folder with what nvcc made */

/* cuModuleLoadData takes PTX as text with a zero at its end. */
__asm__(".pushsection .rodata\n"
	".balign 16\n"
	"digest_fatbin:\n"
	".incbin \"" GPUWM_KERNELS "/digest.fatbin\"\n"
	".balign 16\n"
	"digest_ptx:\n"
	".incbin \"" GPUWM_KERNELS "/digest.ptx\"\n"
	".byte 0\n"
	".popsection\n");

extern const char digest_fatbin[], digest_ptx[];

const void *const kernel_images[KERNEL_IMAGES + 1] = {digest_fatbin, digest_ptx};

#else

const void *const kernel_images[KERNEL_IMAGES + 1];

#endif
