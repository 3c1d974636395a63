/* What the index's reader and builder share: where sections lie, what the two
 * digests are of, and when strides are dense. */
#ifndef GPUWM_PROTO_INDEX_LAYOUT_H
#define GPUWM_PROTO_INDEX_LAYOUT_H

#include "index.h"

#include <assert.h>
#include <stddef.h>

static_assert(sizeof(struct index_header) == 88, "the wire format");
static_assert(sizeof(struct index_tensor) == 64, "the wire format");
static_assert(sizeof(struct index_pair) == 24, "the wire format");
static_assert(sizeof(struct index_file) == 24, "the wire format");

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the index is read in place");
static_assert(offsetof(struct index_tensor, name) == 0 && offsetof(struct index_pair, key) == 0 &&
		      offsetof(struct index_file, name) == 0,
	      "sorting and finding: each table begins with the offset of its name in the heap");

/* Sets the section pointers of a view from the counts in its header. Returns the offset of the end
 * of the dims section, where the heap begins, or UINT64_MAX if the counts overflow. */
uint64_t index_sections(const void *data, struct index_view *view);

/* Compute the digests that docs/protocol.md describes, over a view whose sections are sound. */
struct digest index_layout_digest(const struct index_view *view);
struct digest index_content_digest(const struct index_view *view);

/* Returns whether the strides are a permutation of dense ones. The strides of dimensions of size 1
 * do not matter, and those of an empty tensor do not either. Elements of less than a byte must have
 * the plain order. */
bool index_strides_dense(unsigned dtype, unsigned ndim, const uint64_t *shape, const int64_t *strides);

#endif
