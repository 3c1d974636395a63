/* The sums of pieces of a GPU's memory, computed there: a kernel hashes the leaves, the CPU the leaves' sums, of which there are 0.5 MiB for
 * a GiB. */
#ifndef GPUWM_PEER_SUMS_DEVICE_H
#define GPUWM_PEER_SUMS_DEVICE_H

#include "sums.h"

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
