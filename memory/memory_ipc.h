/* Memory of a device that is no segment: the driver allocates it for this process alone, and frees it with the process. Other processes
 * open it by handles of legacy IPC, and UCX can pass it on. What is opened belongs to the device's primary context. */
#ifndef GPUWM_LIB_MEMORY_IPC_H
#define GPUWM_LIB_MEMORY_IPC_H

#include "memory.h"
#include "../proto/wire/transport.h"

/* What a kind of memory does that has it: memory_ops.ipc. All calls are inside memory_enter. They fail with -EIO and what the driver said. */
struct memory_ipc_ops {
	/* Fails with -ENOTSUP if the driver lacks the calls of legacy IPC; alloc, copy and streams work without them. */
	int (*check)(struct error *error);
	/* Fails with -ENOMEM too. free: NULL is fine. */
	int (*alloc)(uint64_t bytes, void **ret, struct error *error);
	void (*free)(void *address);
	/* A stream of its own. The default one, NULL, has the copies of all threads. stream_close: NULL is fine. */
	int (*stream_open)(void **ret, struct error *error);
	void (*stream_close)(void *stream);
	/* Copies within the device in the stream, and waits until the bytes are there. */
	int (*copy)(void *stream, void *to, const void *from, uint64_t bytes, struct error *error);
	/* Makes the handle of what `alloc` returned. Fails with -ENOTSUP if the device has no legacy IPC. */
	int (*handle)(const void *address, struct ipc_handle *ret, struct error *error);
	/* Opens a handle of another process, once for each handle. Fails with -ENOTSUP if the device has no legacy IPC. */
	int (*open)(const struct ipc_handle *handle, void **ret, struct error *error);
	void (*close)(void *address);
	/* An event that other processes can open by its handle. event_open fails with -ENOTSUP too. event_record records it in the default
	 * stream, and waits for it. event_check fails if it has not come, or its device fails. event_close: NULL is fine. */
	int (*event_open)(void **ret, struct ipc_handle *ret_handle, struct error *error);
	int (*event_record)(void *event, struct error *error);
	int (*event_check)(void *event, struct error *error);
	void (*event_close)(void *event);
};

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

/* Returns 0 if the device's kind has legacy IPC, and its driver the calls. Fails with -ENOTSUP. */
int memory_ipc_check(const struct memory_device *device, struct error *error);
/* Opens one segment of the copy: sets ret->bytes and ret->address. The copy was complete before gpuwmd named it. A process opens each
 * handle once. The caller keeps the device's context (memory_ops.hold) until memory_ipc_close. Returns 0. Fails with -ENOTSUP (the
 * device is no GPU, or the driver has no legacy IPC) and -EIO (also if the holder is gone). */
int memory_ipc_open(const struct memory_device *device, const struct memory_copy *copy, uint32_t segment,
		    struct memory_segment *ret, struct error *error);
/* Closes segments; those without an address are fine. The device must be idle. */
void memory_ipc_close(const struct memory_device *device, struct memory_segment *segments, uint32_t count);

#endif
