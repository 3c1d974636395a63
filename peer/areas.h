/* Areas of memory that UCX registered once, for all messages in them. Elsewhere UCX asks the driver about each message's memory, and registers
 * it: a take from one GPU to another then went at 113 to 160 GB/s, and with areas at 362. Only wire.c uses this. */
#ifndef GPUWM_PEER_AREAS_H
#define GPUWM_PEER_AREAS_H

#include "ucx.h"

#include <stddef.h>

struct area;

/* Zeroed: there are none. */
struct areas {
	struct area *items;
	size_t count;
};

/* Registers memory. The memory stays in place until areas_clear. If UCX refuses, there is no such area, and UCX registers the memory of
 * each message by itself. */
void areas_add(struct areas *areas, const struct ucx *ucx, ucp_context_h context, void *data, size_t bytes,
	       ucs_memory_type_t memory);
/* Returns the handle of the area that has all of these bytes, or NULL. */
ucp_mem_h areas_find(const struct areas *areas, const void *data, size_t bytes);
/* Ends all registrations. No message may be on its way. */
void areas_clear(struct areas *areas, const struct ucx *ucx, ucp_context_h context);

#endif
