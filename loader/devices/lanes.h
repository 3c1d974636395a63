/* Lanes carry buffers of the ring into the memory of the targets, in the background. Each GPU has a
 * stream, and each slot an event.
 *
 *   host → first GPU → second → third, if they can reach each other (NVLink, PCIe)
 *   host → every GPU that can't reach the one before it, or holds another rank
 *
 * Memory that is not a GPU's is written at once. */
#ifndef GPUWM_LOADER_LANES_H
#define GPUWM_LOADER_LANES_H

#include "../../memory/memory.h"

struct lanes;

struct copy_target {
	const struct memory_device *device;
	uint32_t rank; /* of a cut; else 0. Readers need it before `open` */
	/* the address of each tensor of the source or, of a cut, of each share of the rank, mapped for
	 * writing. NULL: of a cut on host whose shares are only digested */
	void *const *addresses;
	const struct memory_segment
		/* the segments that these addresses lie in; its peers may read them; for a host it
		 * may be NULL */
		*segments;
	uint32_t segment_count;
};

/* A part of one tensor, somewhere in a buffer. */
struct lane_span {
	const void *from;
	uint32_t tensor;
	uint64_t offset, bytes; /* offset in the tensor */
};

/* Opens the lanes. `slots` is the number of buffers. It may zero the first bytes of the segments.
 * The caller holds the devices' contexts, and keeps the targets and their addresses until
 * lanes_close. Returns 0 and sets *ret. Fails with -ENOMEM, and with -EIO and what the driver
 * said. */
int lanes_open(const struct copy_target *targets, size_t count, size_t slots, struct lanes **ret,
	       struct error *error);
/* Begins to copy the spans, which lie in buffer `slot`, to every target. Any thread may call it,
 * but only one at a time for a slot. After an error some spans may be on their way, and nothing
 * more may be sent. */
int lanes_send(struct lanes *lanes, size_t slot, const struct lane_span *spans, size_t count,
	       struct error *error);
/* The same for one target, number `target` of those that were given. */
int lanes_send_to(struct lanes *lanes, size_t target, size_t slot, const struct lane_span *spans, size_t count,
		  struct error *error);
/* Waits until everything that was sent from this slot has left it, so that it may be written again.
 * If nothing was ever sent from it, returns at once. */
int lanes_wait(struct lanes *lanes, size_t slot, struct error *error);
/* Waits until everything that was sent has arrived on every device. */
int lanes_drain(struct lanes *lanes, struct error *error);
/* Waits until nothing is on its way, then frees the lanes. lanes may be NULL. Returns NULL. */
struct lanes *lanes_close(struct lanes *lanes);
/* Returns how replicas get their bytes and why, or "". */
const char *lanes_note(const struct lanes *lanes);

/* ---- kinds of lanes (lane_cuda.c) ----
 *
 * The way of bytes to one target. lanes.c has all ways of a copy, and asks the target's kind of memory to go them. */

struct lane {
	const struct copy_target *target;
	const struct lane_ops *ops;
	void *way; /* what `open` made; NULL: nothing */
	/* the lane whose device passes its bytes on to this one's; NULL: the host does */
	const struct lane *from;
};

/* What a kind of memory that is written in the background does. Its functions fail with -EIO and what the driver said. */
struct lane_ops {
	/* Makes what the lane needs to send from `slots` buffers. The caller holds the device's context. Fails with -ENOMEM
	 * too. Where it fails, the caller closes the lane. */
	int (*open)(struct lane *lane, size_t slots, struct error *error);
	/* Waits until what is on its way has arrived, and frees what `open` made. */
	void (*close)(struct lane *lane);
	/* Begins to copy the spans, from buffer `slot`, or from where lane->from has them. */
	int (*send)(struct lane *lane, size_t slot, const struct lane_span *spans, size_t count,
		    struct error *error);
	/* Waits until buffer `slot` may be written again. */
	int (*wait)(struct lane *lane, size_t slot, struct error *error);
	/* Waits until everything that was sent has arrived. */
	int (*drain)(struct lane *lane, struct error *error);
	/* Lets the device of `lane` read that of `from`, of the same kind, and tries whether bytes arrive. */
	int (*pass_on)(const struct lane *from, const struct lane *lane, struct error *error);
};

extern const struct lane_ops lane_cuda;

/* Returns where a span goes. */
static inline void *lane_place(const struct lane *lane, const struct lane_span *span)
{
	return (char *)lane->target->addresses[span->tensor] + span->offset;
}

#endif
