#include "tier_kind.h"
#include "memory_kind.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const struct tier_kind tier_kinds[TIERS] = {
	[ON_DEVICE] = {.word = "device", .is_resident = true, .has_memory = true},
	[ON_HOST] = {.word = "host", .device = DEVICE_HOST, .has_memory = true}, /* a memfd for each segment */
	[ON_FILES] = {.word = "files"},
};

const char *tier_name(enum tier tier)
{
	return tier_kinds[tier].word;
}

int tier_find(const char *name, enum tier *ret)
{
	for (enum tier tier = 0; tier < TIERS; tier++) {
		if (strcmp(tier_kinds[tier].word, name) == 0) {
			*ret = tier;
			return 0;
		}
	}
	return -EINVAL;
}

const char *tier_device(enum tier tier, const char *own)
{
	const struct tier_kind *kind = &tier_kinds[tier];

	if (!kind->has_memory)
		return NULL;
	return kind->device ? kind->device : own;
}

const char *tier_list(enum tier first, char text[TIERS_TEXT])
{
	size_t used = 0;

	for (enum tier tier = first; tier < TIERS && used < TIERS_TEXT; tier++)
		used += (size_t)snprintf(text + used, TIERS_TEXT - used, "%s\"%s\"",
					 tier == first      ? ""
					 : tier + 1 < TIERS ? ", "
							    : " or ",
					 tier_kinds[tier].word);
	return text;
}
