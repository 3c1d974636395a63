/* Whether two versions have the same layout, so that one can lie where the other does. */
#ifndef GPUWM_LIB_LAYOUT_H
#define GPUWM_LIB_LAYOUT_H

#include "../../proto/index.h"

/* A version's index, and what it is called. */
struct layout {
	const struct index_view *view;
	const char *model, *tag;
};

/* 0; -EXDEV with the first difference in *error: of the tensors in the order of
 * their names, then of the segments. */
int layout_compare(const struct layout *now, const struct layout *next, struct error *error);

#endif
