#include "tier.h"
#include "../../proto/wire/messages_loader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[TIERS] = {
	[ON_DEVICE] = TIER_DEVICE, [ON_HOST] = TIER_HOST, [ON_FILES] = TIER_FILES};

const char *tier_name(enum tier tier)
{
	return names[tier];
}

int tier_find(const char *name, enum tier *ret)
{
	for (enum tier tier = 0; tier < TIERS; tier++) {
		if (strcmp(names[tier], name) == 0) {
			*ret = tier;
			return 0;
		}
	}
	return -EINVAL;
}

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
