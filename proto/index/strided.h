/* The elements of a tensor whose strides are a permutation of dense ones, in two orders: the order of its rows, in which
 * files have them, and the order in which they lie in memory. */
#ifndef GPUWM_PROTO_STRIDED_H
#define GPUWM_PROTO_STRIDED_H

#include "../../base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A change of order: where each element of the wanted order lies in the present order. */
struct strided {
	unsigned ndim;
	uint64_t shape[TENSOR_DIMS_MAX]; /* in the wanted order; the last dimension is the fastest */
	uint64_t steps[TENSOR_DIMS_MAX]; /* in elements of the present order */
	size_t element; /* bytes */
};

/* Returns whether the tensor's elements lie in memory in the order of its rows. If elements share bytes, it returns true. */
bool strided_is_plain(unsigned dtype, unsigned ndim, const uint64_t *shape, const int64_t *strides);

/* Sets *ret to the change from memory to rows, or from rows to memory. The strides are a permutation of dense ones
 * (index_strides_dense), and not plain. */
void strided_to_rows(unsigned dtype, unsigned ndim, const uint64_t *shape, const int64_t *strides,
		     struct strided *ret);
void strided_to_memory(unsigned dtype, unsigned ndim, const uint64_t *shape, const int64_t *strides,
		       struct strided *ret);

/* Copies the elements [first, first + count) of the wanted order to `to`. `from` has the whole tensor in the present
 * order. */
void strided_gather(const struct strided *strided, const void *from, uint64_t first, uint64_t count, void *to);

#endif
