/* What the kernel gpuwm_digest takes: digest.cu is compiled from this, the library fills it, and the
 * stand-in driver of the tests has an implementation of its own.
 *
 *   void gpuwm_digest(const struct digest_piece *pieces, struct digest_slot *slots)
 *
 * in one dimension: a block of DIGEST_THREADS threads for each piece, no dynamic shared memory. Each piece's
 * sums are added to slots[piece.slot], which the launcher has set to zero. Both arrays lie in device memory,
 * aligned to 8 bytes. Sums are those of proto/index/digest.h, before digest_final.
 */
#ifndef GPUWM_LIB_KERNELS_DIGEST_PIECE_H
#define GPUWM_LIB_KERNELS_DIGEST_PIECE_H

#include <stdint.h>

#define DIGEST_KERNEL "gpuwm_digest"
#define DIGEST_THREADS 256

/* Consecutive bytes of one span. Any address; one that is a multiple of 16 is read fastest. */
struct digest_piece {
	uint64_t address;
	uint64_t first; /* which of the span's 8-byte words it begins with */
	uint32_t bytes; /* a multiple of 8 unless they are the span's last; 0 is fine */
	uint32_t slot;
};

struct digest_slot {
	uint64_t a, b;
	uint64_t bits; /* 0: every byte was zero */
};

#endif
