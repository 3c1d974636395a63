/* What the kernel gpuwm_compare takes. It is in the module of digest.cu; the library fills the list, and the stand-in driver of the
 * tests has an implementation of its own.
 *
 *   void gpuwm_compare(const struct compare_piece *pieces, uint64_t *differs)
 *
 * in one dimension: a block of COMPARE_THREADS threads for each piece, no dynamic shared memory. *differs, which the launcher has set
 * to zero, becomes nonzero if any byte differs. Both lie in device memory, aligned to 8 bytes.
 */
#ifndef GPUWM_LIB_KERNELS_COMPARE_PIECE_H
#define GPUWM_LIB_KERNELS_COMPARE_PIECE_H

#include <stdint.h>

#define COMPARE_KERNEL "gpuwm_compare"
#define COMPARE_THREADS 256 /* as DIGEST_THREADS */

/* As many bytes at a as at b: both addresses and `bytes` are multiples of 16. */
struct compare_piece {
	uint64_t a, b;
	uint64_t bytes;
};

#endif
