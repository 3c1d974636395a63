/* Which segments of a part are mapped. */
#ifndef GPUWM_LIB_SUBSET_H
#define GPUWM_LIB_SUBSET_H

#include "../../include/gpuwm/client.h"
#include "../../proto/index.h"

#define SUBSET_NOT 255 /* above every position: a part has PART_SEGMENTS_MAX segments at most */

struct subset {
	uint32_t count; /* of those that are mapped */
	uint8_t place[PART_SEGMENTS_MAX]; /* of each segment among them, in the part's order; SUBSET_NOT */
};

/* Those that hold a tensor whose name matches one of the globs (fnmatch's, as Python has them: no escapes, and `*`
 * is any characters); without globs: all. Each glob matches something: -ENOENT. -EINVAL. */
int subset_of(const struct index_view *view, const char *const *globs, size_t count, struct subset *ret,
	      struct error *error);

bool subset_has(const struct subset *subset, uint32_t segment);
bool subset_is(const struct subset *a, const struct subset *b);

#endif
