/* Mapped memory on the backend's device: the host, tests/fakecuda, or a GPU. */
#ifndef GPUWM_TESTS_PIECES_H
#define GPUWM_TESTS_PIECES_H

#include "memory/memory.h"

/* Whether GPUWM_TEST_BACKEND says so. */
bool on_gpu(void);

/* Opens the device, and enters its context with `count` segments of these bytes, each of which is filled with `data`. */
void pieces_begin(struct memory_device *device, struct memory_segment *segments, int count, const void *data,
		  uint64_t bytes);
void pieces_end(struct memory_device *device, struct memory_segment *segments, int count);

#endif
