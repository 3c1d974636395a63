/* Buffers between reading and a GPU: one a reader, page-locked where the
 * driver does that. */
#ifndef GPUWM_LOADER_RING_H
#define GPUWM_LOADER_RING_H

#include "../proto/errors.h"

#include <stdbool.h>
#include <stddef.h>

struct ring {
	void *base;
	size_t chunk, count;
	bool locked; /* registered with the driver */
};

/* count buffers of chunk bytes. Without `lock`, or where registering fails, they are plain
 * memory: slower, and correct. With it the caller holds a device's context. -ENOMEM. */
int ring_make(size_t chunk, size_t count, bool lock, struct ring *ret, struct error *error);
void *ring_buffer(const struct ring *ring, size_t position);
/* A zeroed one is fine. */
void ring_free(struct ring *ring);

#endif
