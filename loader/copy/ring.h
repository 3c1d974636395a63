/* Buffers between reading and the GPUs. They are in huge pages if the kernel gives any, are
 * touched, and are then registered with the driver in one go. */
#ifndef GPUWM_LOADER_RING_H
#define GPUWM_LOADER_RING_H

#include "../../memory/memory.h"

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
