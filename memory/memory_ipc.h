/* Opening copies by legacy CUDA IPC: memory of another process, the holder. Opened memory belongs to the device's primary context. */
#ifndef GPUWM_LIB_MEMORY_IPC_H
#define GPUWM_LIB_MEMORY_IPC_H

#include "memory.h"
#include "../proto/wire/transport.h"

/* A copy, as gpuwmd's answer describes it. */
struct memory_copy {
	struct ipc_handle event; /* says which copy; only processes of the holder's user could open it */
	uint64_t holder; /* its pid */
	uint32_t count;
	struct {
		struct ipc_handle handle;
		uint64_t bytes;
	} segments[];
};

/* Opens one segment of the copy: sets ret->bytes and ret->address. The copy was complete before gpuwmd named it. A process opens each
 * handle once. The caller keeps the device's context (memory_ops.hold) until memory_ipc_close. Returns 0. Fails with -ENOTSUP (the
 * device is no GPU, or the driver has no legacy IPC) and -EIO (also if the holder is gone). */
int memory_ipc_open(const struct memory_device *device, const struct memory_copy *copy, uint32_t segment,
		    struct memory_segment *ret, struct error *error);
/* Closes segments; those without an address are fine. The device must be idle. */
void memory_ipc_close(const struct memory_device *device, struct memory_segment *segments, uint32_t count);

#endif
