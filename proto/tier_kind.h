/* The tiers that a version can lie on. A version lies on one tier with all of its parts; their indexes stay on every tier. A tier is a value
 * of enum tier and a row of tier_kinds, which says what programs have to know of it: they ask the row. How a loader brings bytes from one
 * tier to another is a row of the ways in loader/move/move.c. */
#ifndef GPUWM_PROTO_TIER_KIND_H
#define GPUWM_PROTO_TIER_KIND_H

#include <stdbool.h>

/* The first one is where workers read a version. A version is demoted to a later one, and promoted to the first. */
enum tier { ON_DEVICE, ON_HOST, ON_FILES, TIERS };

struct tier_kind {
	const char *word; /* in messages, in gpuwmd's state and in its configuration */
	/* The device on which the parts lie, and whose budget is charged for them. NULL: each part on its own device. */
	const char *device;
	bool is_resident; /* workers lease the version, and map its memory */
	/* Each part has segments: descriptors, which are charged to the owner, and which the fd store keeps over a restart. Else the version
	 * has no memory, and comes back from the files of its description, also after a reboot. */
	bool has_memory;
};
extern const struct tier_kind tier_kinds[TIERS];

static inline bool tier_is_resident(enum tier tier)
{
	return tier_kinds[tier].is_resident;
}

static inline bool tier_has_memory(enum tier tier)
{
	return tier_kinds[tier].has_memory;
}

/* Returns "device", "host" or "files". */
const char *tier_name(enum tier tier);
/* Sets *ret to the tier of this name. Returns 0. Fails with -EINVAL if there is no such tier. */
int tier_find(const char *name, enum tier *ret);
/* Returns the name of the device on which a part that belongs to `own` lies, or NULL if the tier has no memory. */
const char *tier_device(enum tier tier, const char *own);
/* Writes the names of this tier and of those below it, for an error message: "host" or "files". Returns text. */
#define TIERS_TEXT 64
const char *tier_list(enum tier first, char text[TIERS_TEXT]);

#endif
