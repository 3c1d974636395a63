/* The table of kinds. */
#include "region.h"

#include <errno.h>
#include <string.h>

static const struct region_kind *const kinds[] = {
	&region_kind_pool,
	&region_kind_queue,
	&region_kind_blocks,
	&region_kind_scratch,
};

int region_kind_find(const char *name, const struct region_kind **ret, struct error *error)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (strcmp(kinds[i]->name, name) == 0) {
			*ret = kinds[i];
			return 0;
		}
	}
	return error_set(error, -EINVAL, NULL, "this gpuwmd has no regions of kind \"%s\"", name);
}

void region_count(const struct region *region, struct region_figures *ret)
{
	*ret = (struct region_figures){0};
	if (region->control.head)
		region->is.kind->count(region, ret);
}

void region_look(const struct region *region, struct region_figures *ret)
{
	*ret = (struct region_figures){0};
	if (region->control.head)
		region->is.kind->look(region, ret);
}
