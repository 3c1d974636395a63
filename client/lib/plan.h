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
#include "../../proto/errors.h"

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

/* granularity, align: powers of two. target: SEGMENT_BYTES_TARGET but for tests.
 * -EINVAL naming the tensor: unknown dtype, no whole bytes, overflow, a name
 * twice, strides that are no permutation of dense, tied to nothing or to another size; -EFBIG. */
int plan_make(const struct gpuwm_tensor_spec *specs, size_t count, uint64_t granularity, uint64_t align,
	      uint64_t target, struct plan *ret_plan, struct error *error);
/* The same with segments of `target`, a multiple of SEGMENT_BYTES_MIN (larger only for a tensor that is larger). -EINVAL also when there would be
 * more than PART_SEGMENTS_MAX: names the smallest multiple of SEGMENT_BYTES_MIN that fits. */
int plan_make_exact(const struct gpuwm_tensor_spec *specs, size_t count, uint64_t granularity, uint64_t align,
		    uint64_t target, struct plan *ret_plan, struct error *error);
void plan_clear(struct plan *plan);

#endif
