/* The pipeline from files into memory: reader threads take pieces in the order of
 * the files, digest them while they are in the CPU's cache, and pass them on.
 *
 *   one target, host: file → its memory → digest; what is not cached, and what one reader at
 *                     a time writes by calls (host_write.h): as here:
 *   host only:        file → a buffer → digest → the memory of each
 *   else:             file → a buffer of the ring → digest → lanes → every device
 */
#ifndef GPUWM_LOADER_COPY_H
#define GPUWM_LOADER_COPY_H

#include "reader.h"
#include "ring.h"
#include "source.h"

#include "../client/lib/memory.h"
#include "../proto/digest.h"

/* The largest piece. Smaller ones leave the link idle between copies (2 MiB: 5 %), and of larger ones there are too
 * few for all readers and the link: with two buffers a reader 4 MiB came to 0.96 of the speed of pinned memory. */
#define COPY_CHUNK_BYTES MIB(4)
/* A disk wants several reads at once, however few the CPUs: 8 of 8 MiB came to its full speed. Into host memory alone
 * there are no more than CPUs until something is not cached: they would only take the CPU from each other. */
#define COPY_READERS_MIN 8
#define COPY_READERS_MAX 14

struct copy_target {
	const struct memory_device *device;
	void *const *addresses; /* of each tensor of the source, mapped for writing */
	const struct memory_segment
		*segments; /* that they lie in: its peers may read them; of a host none is fine */
	uint32_t segment_count;
};

struct lanes;

struct copy {
	const struct source *source;
	const struct copy_target *targets; /* replicas: a file is read once */
	size_t target_count; /* at least 1 */
	/* Where not all targets are host: buffers of copy_buffer_bytes(chunk). NULL: all are. */
	struct ring *ring;
	/* Opens what carries buffers to the targets, a slot a buffer; only with a ring. Called once, by the calling thread,
	 * while readers fill the first buffers: nothing of a GPU needs to be there before. *ret stays the caller's. Its
	 * error ends the copy. */
	int (*open)(struct lanes **ret, void *open_data, struct error *error);
	void *open_data;
	size_t chunk; /* a multiple of 8; 0: COPY_CHUNK_BYTES */
	unsigned readers; /* 0: copy_readers(), or fewer; at most COPY_READERS_MAX, and one a buffer */
	memory_progress_fn *progress; /* called by the calling thread only, at least every
				       * COPY_LOOK_MS; nonzero stops the copy */
	void *user_data;
};

#define COPY_LOOK_MS 20 /* how late a cancel may be seen */

/* How a copy went. */
struct copy_report {
	struct read_counts counts;
	double seconds; /* since the lanes were open */
	unsigned readers;
	char note[TEXT_BYTES_MAX + 1]; /* why a file was read through the page cache; "" */
};

/* As many as this process has CPUs, within the bounds above. */
unsigned copy_readers(void);
/* What a buffer for pieces of `chunk` bytes takes: the pages around them are read too. */
size_t copy_buffer_bytes(size_t chunk);

/* Copies everything; ret_digests has one for each tensor. What progress
 * or `open` returned, when it stopped the copy (then *error is not set by progress); -EIO naming a file that is shorter than it
 * was or that changed meanwhile; what a device said; -ENOMEM. No thread is left; after errors some bytes may be on their
 * way until lanes_close. The caller holds the devices' contexts from the end of `open` on. *ret_report is set on errors too: how far it came. */
int copy_run(const struct copy *copy, struct digest *ret_digests, struct copy_report *ret_report,
	     struct error *error);

/* Adds what another copy of the same job reports. */
void copy_report_add(struct copy_report *total, const struct copy_report *report);

/* One sentence for the operator: bytes by the way they took, time, rate. */
void copy_report_text(const struct copy_report *report, char *text, size_t size);

#endif
