/* The pipeline from files into memory: reader threads take pieces of tensors in
 * the order of the files, digest them, and write them to every device.
 *
 *   host among the targets: file → its memory → digest → the other devices
 *   else:                   file → a buffer of the ring → digest → every device
 */
#ifndef GPUWM_LOADER_COPY_H
#define GPUWM_LOADER_COPY_H

#include "source.h"

#include "../client/lib/memory.h"
#include "../proto/digest.h"

/* What one read takes: at 8 MiB, 8 readers came to 0.98 of the speed of pinned memory,
 * at 4 MiB with 4 to 0.68; more readers only cost CPU. */
#define COPY_CHUNK_BYTES MIB(8)
#define COPY_READERS_MAX 8

struct lanes;
struct ring;

struct copy_target {
	const struct memory_device *device;
	void *const *addresses; /* of each tensor of the source, mapped for writing */
	const struct memory_segment *segments; /* that they lie in: its peers may read them */
	uint32_t segment_count;
};

struct copy {
	const struct source *source;
	const struct copy_target *targets; /* replicas: a file is read once */
	size_t target_count; /* at least 1 */
	struct ring *ring; /* buffers, and */
	struct lanes *lanes; /* what carries them to the targets; NULL: `host` only */
	size_t chunk; /* a multiple of 8; 0: COPY_CHUNK_BYTES */
	unsigned readers; /* 0: as many as there are CPUs; at most COPY_READERS_MAX */
	memory_progress_fn *progress; /* called by the calling thread only, at least every
				       * COPY_LOOK_MS; nonzero stops the copy */
	void *user_data;
};

#define COPY_LOOK_MS 20 /* how late a cancel may be seen */

/* Copies everything; ret_digests has one for each tensor. What progress
 * returned, when it stopped the copy (then *error is not set); -EIO naming a file that is shorter than it
 * was or that changed meanwhile; what a device said. No thread is left. */
int copy_run(const struct copy *copy, struct digest *ret_digests, struct error *error);

#endif
