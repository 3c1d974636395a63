/* What the kernels of the module take: digest.cu is compiled from this, the library fills the lists, and the stand-in driver of the tests
 * computes the same. All arrays lie in device memory. No kernel has dynamic shared memory, and all have one dimension. */
#ifndef GPUWM_LIB_KERNELS_PIECES_H
#define GPUWM_LIB_KERNELS_PIECES_H

#include <stdint.h>

/* ---- digests ----
 *   void gpuwm_digest(const struct digest_piece *pieces, struct digest_slot *slots)
 *
 * A block of DIGEST_THREADS threads for each piece. Each piece's sums are added to slots[piece.slot], which the launcher has set to
 * zero. Both arrays are aligned to 8 bytes. Sums are those of proto/index/digest.h, before digest_final. */

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

/* ---- comparison ----
 *   void gpuwm_compare(const struct compare_piece *pieces, uint64_t *differs)
 *
 * A block of COMPARE_THREADS threads for each piece. *differs, which the launcher has set to zero, becomes nonzero if any byte differs.
 * Both are aligned to 8 bytes. */

#define COMPARE_KERNEL "gpuwm_compare"
#define COMPARE_THREADS 256 /* as DIGEST_THREADS */

/* As many bytes at a as at b: both addresses and `bytes` are multiples of 16. */
struct compare_piece {
	uint64_t a, b;
	uint64_t bytes;
};

/* ---- SHA-256 ----
 *   void gpuwm_sha256(const struct sha256_leaf *leaves, struct sha256_sum *sums)
 *
 * A block has SHA256_THREADS threads, each of which has a leaf. So the list has a multiple of SHA256_THREADS leaves: the last ones may be
 * empty. Both arrays are aligned to 16 bytes. */

#define SHA256_KERNEL "gpuwm_sha256"
#define SHA256_THREADS 32 /* one warp: a few leaves are on as many processors as there are */

/* The address is a multiple of 16; any number of bytes. */
struct sha256_leaf {
	uint64_t address;
	uint64_t bytes;
};

struct sha256_sum {
	uint8_t bytes[32];
};

#endif
