/* Compares the layouts of two versions. If they are equal, one version can be mapped where the other is. */
#ifndef GPUWM_LIB_LAYOUT_H
#define GPUWM_LIB_LAYOUT_H

#include "../../../proto/index/index.h"

/* The index of a version, and its name. */
struct layout {
	const struct index_view *view;
	const char *model, *tag;
};

/* Returns 0 if the layouts are equal. Fails with -EXDEV; the message has the first difference, of the tensors in the order of their
 * names, then of the segments. */
int layout_compare(const struct layout *now, const struct layout *next, struct error *error);

#endif
