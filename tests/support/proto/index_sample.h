/* A small index for tests, in memory, and ways to change and read it. */
#ifndef GPUWM_TESTS_PROTO_INDEX_SAMPLE_H
#define GPUWM_TESTS_PROTO_INDEX_SAMPLE_H

#include "proto/index/index.h"

#include <criterion/criterion.h>

extern struct error error;

/* Adds a tensor to the builder. */
void sample_add(struct index_builder *b, const char *name, unsigned dtype, unsigned ndim, const uint64_t *shape,
		const int64_t *strides, uint32_t segment, uint64_t offset);

/* Returns a builder of two segments. In the order of names: "empty" of nothing, "head" tied to "wte", "mask" of half
 * bytes, "scale" a scalar, "wte" a matrix; two texts, two files. */
struct index_builder *sample_builder(void);

/* Finishes the index and returns its bytes, which the caller frees. */
void *sample_bytes(struct index_builder *b, size_t *ret_bytes);

#endif
