#include "description.h"

#include <stdlib.h>
#include <string.h>

struct description *description_new(const char *source, const char *cut, uint64_t ranks)
{
	struct description *description = calloc(1, sizeof(*description));

	if (!description)
		return NULL;
	description->source = strdup(source);
	description->cut = cut ? strdup(cut) : NULL;
	description->ranks = ranks;
	return description->source && (description->cut || !cut) ? description : description_free(description);
}

struct description *description_free(struct description *description)
{
	if (!description)
		return NULL;
	free(description->source);
	free(description->cut);
	free(description);
	return NULL;
}
