/* SHA-256 of a version, as a tree. What a taker receives in pieces it verifies piece by piece, and one sum names the
 * whole version.
 *
 *   leaf         64 KiB of a segment
 *   piece        4 MiB of a segment: the sum of its leaves' sums
 *   segment      the sum of its pieces' sums
 *   part         the sum of its index' sum and its segments' sums
 *   fingerprint  the sum of the version's parts' sums, one of each rank, in the order of the ranks
 *
 * The last leaf and the last piece of a segment may be shorter. No two trees have the same sum: the index, whose own
 * sum stands first in a part, says how many segments there are and how many bytes each of them has, so that the shape
 * of the tree is fixed. The leaves are small and independent of each other, so that a GPU's kernel can compute them. */
#ifndef GPUWM_PEER_SUMS_H
#define GPUWM_PEER_SUMS_H

#include "../memory/memory.h"

#define SUM_BYTES 32
#define SUM_TEXT (2 * SUM_BYTES + 1) /* its hex digits and the zero */

#define SUMS_LEAF_BYTES KIB(64)
#define SUMS_PIECE_BYTES MIB(4)
#define SUMS_PIECE_LEAVES (SUMS_PIECE_BYTES / SUMS_LEAF_BYTES)

/* A core hashes 0.5 to 2 GB/s, a network brings up to 50: a few cores are left to others. */
#define SUMS_THREADS_MAX 16

struct sum {
	uint8_t bytes[SUM_BYTES];
};

bool sum_equal(const struct sum *a, const struct sum *b);
/* Writes the sum as 64 hex digits. */
void sum_format(const struct sum *sum, char ret[SUM_TEXT]);
/* Reads 64 hex digits of either case. Returns 0 and sets *ret. Fails with -EINVAL. */
int sum_parse(const char *text, struct sum *ret);

/* Returns how many pieces a segment of so many bytes has. */
uint64_t sums_piece_count(uint64_t segment_bytes);
/* Returns the bytes of the piece at `position` of such a segment. */
size_t sums_piece_bytes(uint64_t segment_bytes, uint64_t position);

/* Each of these functions returns 0 and sets *ret. They fail with -ENOMEM, if OpenSSL has no memory for a state.
 * Any thread. sums_plain is SHA-256 of the bytes without a tree, as of an index. */
int sums_plain(const void *data, size_t bytes, struct sum *ret);
/* bytes: 1 to SUMS_PIECE_BYTES */
int sums_piece(const void *data, size_t bytes, struct sum *ret);
int sums_segment(const struct sum *pieces, uint64_t count, struct sum *ret);
int sums_part(const struct sum *index, const struct sum *segments, uint32_t count, struct sum *ret);
int sums_fingerprint(const struct sum *parts, uint32_t world, struct sum *ret);

/* A buffer of SUMS_PIECE_BYTES into which a piece of this device's memory is copied to be read by the CPU; if the driver can, registered with it,
 * so that copies are fast. The caller is inside memory_enter, also for sums_buffer_free, which accepts NULL. Returns NULL if there is no
 * memory, and where the CPU reads the memory itself. */
void *sums_buffer_new(const struct memory_device *device);
void sums_buffer_free(const struct memory_device *device, void *buffer);

/* How sums_memory works. */
struct sums_options {
	unsigned threads; /* at most; 0: one */
	memory_progress_fn *progress; /* NULL: none. The calling thread calls it, as memory_digests does */
	void *user_data;
};

/* Computes the sums of all pieces of a mapped segment, by the device's kernel (sums_device.c), or with several threads. Where the CPU can't
 * read the memory itself, they copy it to the host piece by piece; the caller is inside memory_enter then.
 *
 * Returns 0 and fills ret_pieces, which has room for sums_piece_count(bytes). Fails with -ENOMEM, with -EIO if the memory can't be
 * read, and with -ECANCELED if progress returned nonzero. */
int sums_memory(const struct memory_device *device, const struct memory_span *segment,
		const struct sums_options *options, struct sum *ret_pieces, struct error *error);

/* ---- on a device (sums_device.c) ----
 *
 * The sums of pieces of a GPU's memory, computed there: a kernel hashes the leaves, the CPU the leaves' sums, of which there are 0.5 MiB for
 * a GiB. */

/* At a time: 2 GiB. A thread of the kernel hashes its leaf in some milliseconds, and a GPU has room for more threads than 1 GiB has leaves:
 * fewer pieces take as long. */
#define SUMS_DEVICE_PIECES 512

struct sums_device;

/* The caller is inside memory_enter, in all of these functions. One thread. Returns 0 and sets *ret. Returns 1 if the device's kind has no
 * kernel or none can be had: then the CPU hashes. Fails with -ENOMEM and -EIO. */
int sums_device_open(const struct memory_device *device, struct sums_device **ret, struct error *error);
/* Computes the sums of `count` pieces, SUMS_DEVICE_PIECES at most. Each has 1 to SUMS_PIECE_BYTES bytes, and begins at a multiple of 16.
 * Returns 0 and fills ret. Fails with -ENOMEM, and with -EIO if the memory can't be read. */
int sums_device_run(struct sums_device *sums, const struct memory_span *pieces, size_t count, struct sum *ret,
		    struct error *error);
/* NULL is fine. Returns NULL. */
struct sums_device *sums_device_close(struct sums_device *sums);

#endif
