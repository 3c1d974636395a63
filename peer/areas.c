#ifdef GPUWM_UCX
#include "ucx.h"

#include <stdlib.h>

struct area {
	const char *data;
	size_t bytes;
	ucp_mem_h handle;
};

void areas_add(struct areas *areas, const struct ucx *ucx, ucp_context_h context, void *data, size_t bytes,
	       ucs_memory_type_t memory)
{
	const ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
			      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
		.address = data,
		.length = bytes,
		.memory_type = memory,
	};
	struct area *items = realloc(areas->items, (areas->count + 1) * sizeof(*items));
	struct area *area;

	if (!items)
		return;
	areas->items = items;
	area = &items[areas->count];
	*area = (struct area){.data = data, .bytes = bytes};
	areas->count += ucx->ucp_mem_map(context, &params, &area->handle) == UCS_OK;
}

ucp_mem_h areas_find(const struct areas *areas, const void *data, size_t bytes)
{
	for (size_t i = 0; i < areas->count; i++) {
		const struct area *area = &areas->items[i];

		if ((const char *)data >= area->data && (const char *)data + bytes <= area->data + area->bytes)
			return area->handle;
	}
	return NULL;
}

void areas_clear(struct areas *areas, const struct ucx *ucx, ucp_context_h context)
{
	for (size_t i = 0; i < areas->count; i++)
		ucx->ucp_mem_unmap(context, areas->items[i].handle);
	free(areas->items);
	*areas = (struct areas){0};
}
#endif
