/* What carries buffers of the ring into the memory of the targets, in the
 * background: a stream a GPU, an event a slot.
 *
 *   host → first GPU → second → third, where they can reach each other (NVLink, PCIe)
 *   host → every GPU that can't reach the one before it
 *
 * Memory that is no GPU's is written at once. */
#ifndef GPUWM_LOADER_LANES_H
#define GPUWM_LOADER_LANES_H

#include "copy.h"

struct lanes;

/* A part of one tensor, somewhere in a buffer. */
struct lane_span {
	const void *from;
	uint32_t tensor;
	uint64_t offset, bytes; /* in the tensor */
};

/* slots: how many buffers there are. What the segments begin with may be zeroed. The caller holds the devices' contexts, and keeps targets
 * and their addresses until the end. -ENOMEM; -EIO with what the driver said. */
int lanes_open(const struct copy_target *targets, size_t count, size_t slots, struct lanes **ret,
	       struct error *error);
/* Begins to copy the spans, which lie in buffer `slot`, to every target. Any thread, one
 * at a time for a slot. An error may leave some on their way: nothing more is to be sent. */
int lanes_send(struct lanes *lanes, size_t slot, const struct lane_span *spans, size_t count,
	       struct error *error);
/* Until what was sent from this slot has left it: it may be written again. A slot
 * that was never sent: at once. */
int lanes_wait(struct lanes *lanes, size_t slot, struct error *error);
/* Until everything that was sent is on every device. */
int lanes_drain(struct lanes *lanes, struct error *error);
/* NULL; NULL is fine. Waits until nothing is on its way. */
struct lanes *lanes_close(struct lanes *lanes);
/* "", or how replicas get their bytes and why so. */
const char *lanes_note(const struct lanes *lanes);

#endif
