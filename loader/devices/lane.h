/* The way of bytes to one target. lanes.c has all ways of a copy, and asks the target's kind of memory to go them. */
#ifndef GPUWM_LOADER_LANE_H
#define GPUWM_LOADER_LANE_H

#include "lanes.h"

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
