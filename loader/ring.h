/* Buffers between reading and the GPUs: in huge pages where the kernel gives
 * them, touched, then registered with the driver in one go. */
#ifndef GPUWM_LOADER_RING_H
#define GPUWM_LOADER_RING_H

#include "../proto/errors.h"

#include <stdbool.h>
#include <stddef.h>

/* What all buffers of a load take at most: a loader's memory stays within 192 MiB of a bare
 * process with a context, and more buffers do not make it faster. */
#define RING_BYTES_MAX MIB(128)

struct ring {
	void *base;
	size_t chunk, count;
	size_t bytes; /* mapped */
	size_t pinned; /* registered with the driver: so many, from the first one on */
	char note[TEXT_BYTES_MAX + 1]; /* "" or what was not to be had, for the operator */
};

/* Memory in huge pages where the kernel gives them, zeros, a multiple of the page size; NULL. For munmap. The disk's
 * requests are as large as memory is in one piece: with O_DIRECT into small pages a virtio disk gave 1.2 GB/s, into huge ones 3.4. */
void *ring_map(size_t bytes);
/* count buffers of chunk bytes, a multiple of 4096: plain memory, touched. Needs no
 * driver. -ENOMEM. */
int ring_make(size_t chunk, size_t count, struct ring *ret, struct error *error);
/* Registers it for every GPU, inside a context. What is refused with all buffers is tried with
 * half of them, and so on; refused at all it stays plain memory: slower, and
 * correct. Either is said in note. Buffers may be written meanwhile. */
void ring_lock(struct ring *ring);
/* How many buffers are to be sent from, the first ones: few that are pinned are faster than many of which some are not. */
size_t ring_usable(const struct ring *ring);
/* Buffer `slot`, aligned to 4096. */
void *ring_buffer(const struct ring *ring, size_t slot);
/* Inside a context where it is locked; nothing may be on its way from it. A zeroed one is fine. */
void ring_free(struct ring *ring);

#endif
