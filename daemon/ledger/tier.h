/* The tiers of a version: where its memory lies, and what gpuwmd must know to bring it back. */
#ifndef GPUWM_DAEMON_TIER_H
#define GPUWM_DAEMON_TIER_H

#include <stdbool.h>
#include <stdint.h>

/* A version lies on one tier with all of its parts. On the tier `host` each segment of a part that belongs to a GPU is a memfd of the
 * same size. On the tier `files` the parts have no segments: the memory comes back from the files of the description. The
 * index stays on every tier. */
enum tier { ON_DEVICE, ON_HOST, ON_FILES, TIERS };
/* Returns "device", "host" or "files". */
const char *tier_name(enum tier tier);
/* Sets *ret to the tier of this name. Returns 0. Fails with -EINVAL if there is no such tier. */
int tier_find(const char *name, enum tier *ret);

/* What a version can be loaded from again, with every byte of its memory. */
struct description {
	char *source; /* in the form that a load takes */
	char *cut; /* the text of the plan; NULL: it is not cut */
	uint64_t ranks; /* how many ranks the cut makes; 0: it is not cut */
};
/* Copies a description. Returns NULL if there is no memory. */
struct description *description_new(const char *source, const char *cut, uint64_t ranks);
/* Frees the description. NULL is fine. Returns NULL. */
struct description *description_free(struct description *description);

#endif
