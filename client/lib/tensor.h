/* Tensors of an index, and where they are mapped. */
#ifndef GPUWM_LIB_TENSOR_H
#define GPUWM_LIB_TENSOR_H

#include "attach.h"

/* 0 for a tensor of the part's index, whose `data` it sets; -ERANGE for one that is none; -ENODATA: not mapped. */
int mapped_part_holds(const struct mapped_part *part, struct gpuwm_tensor *tensor, struct error *error);

/* Where in the index the tensor of that name is. -ENOENT, also for NULL. */
int64_t tensor_position(const struct gpuwm_mapping *mapping, const char *name, struct error *error);
/* A tensor of an index, without data. -ERANGE. */
int tensor_of(const struct index_view *view, uint64_t position, struct gpuwm_tensor *ret_tensor,
	      struct error *error);

#endif
