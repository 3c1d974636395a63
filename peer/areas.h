/* Memory that UCX has registered once, for all messages about it. Without that, UCX asks the driver about each message and registers what it is about:
 * between two GPUs, 64 MiB then took twice as long as their transfer over NVLink. Only wire.c uses it. */
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

/* Registers memory that stays in place until areas_clear. If UCX can't, each message is registered by itself. */
void areas_add(struct areas *areas, const struct ucx *ucx, ucp_context_h context, void *data, size_t bytes,
	       ucs_memory_type_t memory);
/* Returns the handle of the area that has all of these bytes, or NULL. */
ucp_mem_h areas_find(const struct areas *areas, const void *data, size_t bytes);
/* No message may be on its way. */
void areas_clear(struct areas *areas, const struct ucx *ucx, ucp_context_h context);

#endif
