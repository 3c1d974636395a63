/* The layout of a part: which tensor lies where. It follows from names,
 * dtypes and shapes alone, not from files or the order of arrival: tensors in
 * the order of their names, each aligned (to TENSOR_ALIGN unless the publisher asks otherwise), packed into
 * segments of SEGMENT_BYTES_TARGET (larger when there would be more than
 * PART_SEGMENTS_MAX), or of what the publisher asks for; a tensor is never split, a tied one takes no room, an
 * empty one takes no room but has a place.
 */
#ifndef GPUWM_LIB_PLAN_H
#define GPUWM_LIB_PLAN_H

#include "../../include/gpuwm/client.h"
#include "../../base/errors.h"

struct plan_place {
	uint32_t segment;
	uint64_t offset, bytes;
};

struct plan {
	struct plan_place *places; /* one for each spec, in the specs' order */
	uint64_t *segments; /* bytes of each: multiples of the granularity */
	uint32_t segment_count;
	uint64_t total; /* of the segments */
};

/* How tensors are put into segments. */
struct plan_policy {
	uint64_t granularity, align; /* powers of two */
	/* The bytes of a segment: SEGMENT_BYTES_TARGET unless the publisher or a test asks otherwise. */
	uint64_t target;
	bool exact; /* the target, a multiple of SEGMENT_BYTES_MIN, does not grow: only a tensor makes a segment larger */
};

/* -EINVAL naming the tensor: unknown dtype, no whole bytes, overflow, a name twice, strides that are no permutation of
 * dense, tied to nothing or to another size; -EFBIG. With policy->exact also -EINVAL when there would be more than
 * PART_SEGMENTS_MAX: names the smallest multiple of SEGMENT_BYTES_MIN that fits. */
int plan_make(const struct gpuwm_tensor_spec *specs, size_t count, const struct plan_policy *policy,
	      struct plan *ret_plan, struct error *error);
void plan_clear(struct plan *plan);

/* Returns the positions of the plan's `count` tensors in the order of their places; the caller frees them. NULL: out of
 * memory. */
size_t *plan_order(const struct plan *plan, size_t count);
/* Returns whether two tensors have the same place and size, because they are tied or both empty. */
bool plan_shares_place(const struct plan *plan, size_t a, size_t b);

#endif
