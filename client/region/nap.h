/* Waiting for other processes to finish with chunks. A process rings a bell; a stream can't, so whoever may wait for a stream looks
 * again from time to time. */
#ifndef GPUWM_LIB_NAP_H
#define GPUWM_LIB_NAP_H

#include "region.h"

struct nap {
	struct control_bell *bell;
	uint32_t seen; /* what the bell had rung before the last look */
	bool streams; /* a stream may be what is waited for */
	int64_t next_us; /* how long the next nap is; 0: the first one */
};

/* Begins to wait for users of the region to finish with chunks. */
struct nap nap_begin(const struct gpuwm_region *region);
/* Call it before each look. */
void nap_look(struct nap *nap);
/* Waits until it is worth looking again, or until the deadline (base/clock.h). Returns false if the deadline has passed. */
bool nap_take(struct nap *nap, int64_t deadline);

#endif
