/* The tensors of an index, and where they are mapped. */
#ifndef GPUWM_LIB_TENSOR_H
#define GPUWM_LIB_TENSOR_H

#include "attach.h"

/* Sets the `data` of a tensor of the part's index. Fails with -ERANGE if the index has no such tensor, and with -ENODATA if its segment
 * is not mapped. */
int mapped_part_holds(const struct mapped_part *part, struct gpuwm_tensor *tensor, struct error *error);

/* Returns the position of the tensor with this name in the index. Fails with -ENOENT, also for NULL. */
int64_t tensor_position(const struct gpuwm_mapping *mapping, const char *name, struct error *error);
/* Describes a tensor of an index, without its data. Fails with -ERANGE. */
int tensor_of(const struct index_view *view, uint64_t position, struct gpuwm_tensor *ret_tensor,
	      struct error *error);

#endif
