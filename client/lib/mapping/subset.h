/* The segments of a part that are mapped. */
#ifndef GPUWM_LIB_SUBSET_H
#define GPUWM_LIB_SUBSET_H

#include "../../../include/gpuwm/client.h"
#include "../../../proto/index/index.h"

#define SUBSET_NOT 255 /* above every position: a part has PART_SEGMENTS_MAX segments at most */

struct subset {
	uint32_t count; /* how many are mapped */
	uint8_t place
		[PART_SEGMENTS_MAX]; /* the position of each segment among those that are mapped; SUBSET_NOT: it is not */
};

/* Sets *ret to the segments that hold a tensor whose name matches one of the globs, or to all segments if there are no globs. The
 * globs are those of Python's fnmatch: there are no escapes, and `*` stands for any characters. Fails with -ENOENT if a glob
 * matches no tensor, and with -EINVAL. */
int subset_of(const struct index_view *view, const char *const *globs, size_t count, struct subset *ret,
	      struct error *error);

bool subset_has(const struct subset *subset, uint32_t segment);
bool subset_is(const struct subset *a, const struct subset *b);

#endif
