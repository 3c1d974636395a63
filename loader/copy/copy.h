/* The pipeline from files into memory. Reader threads take pieces in the order of the files, digest
 * them while they are in the CPU's cache, and pass them on.
 *
 *   one target, host: file → its memory → digest
 *   host only:        file → a buffer → digest → the memory of each target
 *   otherwise:        file → a buffer of the ring → digest → lanes → every device
 *
 * If the source is cut, each target gets the bytes of its rank: see copy_cut.c.
 *
 * With one target on host, two kinds of bytes go through a buffer as in the second line: those that
 * are not cached, and those that one reader at a time writes by calls (host_write.c). */
#ifndef GPUWM_LOADER_COPY_H
#define GPUWM_LOADER_COPY_H

#include "../cut/cut.h"
#include "../devices/lanes.h"
#include "reader.h"
#include "../files/source.h"

#include "../../memory/memory.h"
#include "../../proto/index/digest.h"

/* The largest piece. Smaller pieces leave the link idle between copies (2 MiB: 5 %). Of larger
 * pieces there are too few for all readers and the link. With two buffers a reader, 4 MiB reached
 * 0.96 of the speed of pinned memory. */
#define COPY_CHUNK_BYTES MIB(4)
/* A disk wants several reads at once, however few CPUs there are: 8 reads of 8 MiB reached its full
 * speed. If all targets are host memory, there are no more readers than CPUs until something is not
 * cached: they would only take the CPU from each other. */
#define COPY_READERS_MIN 8
#define COPY_READERS_MAX 14
/* Of a copy to several GPUs that get different bytes: what a piece has for each GPU. The whole piece has COPY_CHUNK_BYTES at most.
 * Here the host's memory is the limit, unless the ring stays in the CPU's last cache. On two GPUs, 64 buffers of 1 MiB gave 82 GB/s,
 * 63 of 4 MiB gave 60, and 128 of 1 MiB gave 58. With less for each GPU the driver's calls are the limit: 64 buffers of 512 KiB gave 40. */
#define COPY_CHUNK_EACH_BYTES KIB(512)
/* The readers of such a copy. On two GPUs 48 readers have 96 MiB of buffers. The figures above are those of 32 readers. */
#define COPY_READERS_APART 48
#define COPY_THREADS_MAX 128

struct copy {
	const struct source *source;
	/* of a cut: of different ranks, not always of all. Else replicas. Each file is read only once
	 * for all of them. Without any, the files are only digested. */
	const struct copy_target *targets;
	size_t target_count;
	const struct cut *cut; /* of this source; NULL: each target gets all of it */
	/* Buffers of copy_buffer_bytes(chunk), if a target is not on host. NULL: all targets
	 * are. */
	struct ring *ring;
	/* Opens the lanes that carry buffers to the targets, with a slot for each buffer. It is
	 * called only with a ring, once, by the calling thread, while readers fill the first
	 * buffers: nothing of a GPU needs to be ready before. *ret stays the caller's. An error of
	 * it ends the copy. */
	int (*open)(struct lanes **ret, void *open_data, struct error *error);
	void *open_data;
	bool undigested; /* the bytes are digested elsewhere: copy_run sets no digests */
	size_t chunk; /* a multiple of 8; 0: COPY_CHUNK_BYTES */
	/* 0: copy_readers(1), or fewer; at most COPY_THREADS_MAX, and one for each buffer */
	unsigned readers;
	/* called by the calling thread only, at least every COPY_LOOK_MS; if it returns nonzero,
	 * the copy stops */
	memory_progress_fn *progress;
	void *user_data;
};

#define COPY_LOOK_MS 20 /* the longest delay before a cancel is seen */

/* How a copy went. */
struct copy_report {
	struct read_counts counts;
	double seconds; /* since the lanes were opened */
	unsigned readers;
	/* why a file was read through the page cache; "" if none was */
	char note[TEXT_BYTES_MAX + 1];
};

/* Return how many readers a copy has, which is the number of CPUs within the bounds above, and the size of its pieces. `gpus`: how many
 * GPUs get different bytes. */
unsigned copy_readers(unsigned gpus);
size_t copy_chunk(unsigned gpus);
/* Returns the size of a buffer for pieces of `chunk` bytes: it also has room for the pages around
 * them. */
size_t copy_buffer_bytes(size_t chunk);

/* Copies everything. The caller holds the devices' contexts from the end of `open` on.
 *
 * Returns 0 and sets ret_digests, an array with one digest for each tensor or, of a cut, for each
 * share, as far as it belongs to the rank of a target; an undigested copy sets none. Sets *ret_report also
 * after errors: it says how far the copy came. No reader thread is left when it returns. After an
 * error some bytes may be on their way until lanes_close.
 *
 * If progress or `open` stops the copy, returns what that function returned; progress does not set
 * *error. Fails with -EIO if a file is shorter than it was, or changed meanwhile (the message names
 * it), with the code of a device, and with -ENOMEM. */
int copy_run(const struct copy *copy, struct digest *ret_digests, struct copy_report *ret_report,
	     struct error *error);

/* Adds the report of another copy of the same job. */
void copy_report_add(struct copy_report *total, const struct copy_report *report);

/* Writes one sentence for the operator: the bytes by the way they took, the time and the rate. */
void copy_report_text(const struct copy_report *report, char *text, size_t size);

/* Returns whether mappings of `host` memory that ask for it get huge pages on this machine. */
bool host_pages_are_huge(void);

/* ---- the ring (ring.c) ----
 *
 * Buffers between reading and the GPUs. They are in huge pages if the kernel gives any, are
 * touched, and are then registered with the driver in one go. */

/* The most that all buffers of a load take. A loader then takes at most 192 MiB more than a bare process with a context. More buffers
 * do not make it faster. */
#define RING_BYTES_MAX MIB(128)

struct ring {
	void *base;
	size_t chunk, count;
	size_t bytes; /* the size of the mapping */
	size_t pinned; /* how many buffers are registered with the driver, from the first one on */
	const struct memory_ops *ops; /* who registered them */
	char note[TEXT_BYTES_MAX + 1]; /* what could not be had, for the operator, or "" */
};

/* Maps zeroed memory of `bytes`, a multiple of the page size, in huge pages if the kernel gives
 * any. Returns it, for munmap, or NULL. A disk's requests are no larger than a contiguous piece of
 * memory: with O_DIRECT a virtio disk gave 1.2 GB/s into small pages, and 3.4 into huge ones. */
void *ring_map(size_t bytes);
/* Makes `count` buffers of `chunk` bytes, a multiple of 4096: plain memory that was touched. It
 * needs no driver. Returns 0 and sets *ret. Fails with -ENOMEM. */
int ring_make(size_t chunk, size_t count, struct ring *ret, struct error *error);
/* Registers the buffers for every GPU of the device's kind. The caller is inside its context. If the driver refuses all
 * buffers, it tries half of them, and so on. If the driver refuses any number, they stay plain
 * memory, which is slower but correct. The note says either. Readers may write into the buffers
 * meanwhile. */
void ring_lock(struct ring *ring, const struct memory_device *device);
/* Returns how many buffers, from the first one on, are to be sent from: a few that are pinned are
 * faster than many of which some are not. */
size_t ring_usable(const struct ring *ring);
/* Returns buffer `slot`, aligned to 4096. */
void *ring_buffer(const struct ring *ring, size_t slot);
/* Frees the buffers. If they are registered, the caller is inside a context. Nothing may be on its
 * way from them. A zeroed ring is fine. */
void ring_free(struct ring *ring);

#endif
