/* The index: the table of tensors of one part, in a sealed memfd that every
 * client maps read-only. One program builds it, the checker validates it once,
 * everybody looks up in place.
 *
 * Layout, all little-endian, sections in this order, each 8-byte aligned:
 *   struct index_header
 *   struct index_segment[segment_count]
 *   struct index_tensor[tensor_count]     sorted by name (bytes), names unique
 *   struct index_pair[metadata_count]     sorted by key, keys unique
 *   struct index_file[file_count]         sorted by name, names unique
 *   uint64_t dims[dim_count]              per tensor: shape, then strides (int64, elements)
 *   bytes                                 names, texts (each followed by a zero), file contents
 */
#ifndef GPUWM_PROTO_INDEX_H
#define GPUWM_PROTO_INDEX_H

#include "digest.h"
#include "dtype.h"
#include "errors.h"

#define INDEX_MAGIC "GPUWMIX1"

struct index_header {
	char magic[8];
	uint64_t total_bytes; /* of the whole index */
	uint32_t rank, world;
	uint32_t segment_count, tensor_count, metadata_count, file_count;
	uint64_t dim_count;
	uint64_t heap_offset; /* where the bytes section begins */
	struct digest layout; /* of segments, names, dtypes, shapes, strides, places */
	struct digest content; /* of the layout, every tensor's digest, metadata and files */
};

struct index_segment {
	uint64_t bytes; /* exactly what its descriptor holds */
};

struct index_tensor {
	uint64_t name; /* offset in the heap */
	uint32_t name_bytes;
	uint16_t dtype;
	uint16_t ndim;
	uint32_t segment;
	uint32_t reserved; /* 0 */
	uint64_t offset; /* in the segment, in bytes */
	uint64_t bytes;
	uint64_t dims; /* first entry in dims[] */
	struct digest digest;
};

struct index_pair {
	uint64_t key, value; /* offsets in the heap */
	uint32_t key_bytes, value_bytes;
};

struct index_file {
	uint64_t name, content; /* offsets in the heap */
	uint32_t name_bytes;
	uint32_t content_bytes;
};

/* ---- reading ---------------------------------------------------------- */

/* A validated index in memory that the caller keeps mapped and unchanged. */
struct index_view {
	const struct index_header *header;
	const struct index_segment *segments;
	const struct index_tensor *tensors;
	const struct index_pair *metadata;
	const struct index_file *files;
	const uint64_t *dims;
	const char *heap;
};

/* Checks everything once: magic, sizes, offsets, order and uniqueness of
 * names, terminating zeros, dtypes, shape against bytes, strides that are a
 * permutation of dense, alignment to the element, places inside their segments,
 * two tensors either disjoint or in the very same place with the same digest
 * (tied), both header digests. -EBADMSG with the fault in *error. O(n log n). */
int index_open(const void *data, size_t bytes, struct index_view *ret_view, struct error *error);

/* The same without the O(n) checks, for an index that a checker passed: only
 * the header and the section bounds. */
int index_open_trusted(const void *data, size_t bytes, struct index_view *ret_view, struct error *error);

/* O(log n). The position, or -ENOENT. */
int64_t index_find(const struct index_view *view, const char *name);
const char *index_tensor_name(const struct index_view *view, const struct index_tensor *tensor);
/* ndim entries each. */
const uint64_t *index_shape(const struct index_view *view, const struct index_tensor *tensor);
const int64_t *index_strides(const struct index_view *view, const struct index_tensor *tensor);
/* The value, or NULL. */
const char *index_metadata(const struct index_view *view, const char *key);
/* NULL when there is no such file. */
const void *index_file(const struct index_view *view, const char *name, uint32_t *ret_bytes);

/* ---- building --------------------------------------------------------- */

struct index_builder;

struct index_tensor_spec {
	const char *name;
	unsigned dtype;
	unsigned ndim;
	const uint64_t *shape;
	const int64_t *strides; /* NULL: dense, last dimension fastest */
	uint32_t segment;
	uint64_t offset;
};

/* Copies everything it is given. NULL: out of memory. */
struct index_builder *index_builder_new(uint32_t rank, uint32_t world);
struct index_builder *index_builder_free(struct index_builder *b);
int index_builder_segment(struct index_builder *b, uint64_t bytes);
int index_builder_tensor(struct index_builder *b, const struct index_tensor_spec *spec, struct error *error);
/* What was added as number `position`; its pointers are valid until the next call of the builder. */
void index_builder_spec(const struct index_builder *b, size_t position, struct index_tensor_spec *ret);
/* The digest of the tensor that was added as number `position`. */
int index_builder_digest(struct index_builder *b, size_t position, const struct digest *digest);
/* A key or name given twice: -EEXIST. Above INDEX_FILES_BYTES_MAX: -EFBIG. An empty
 * name, or a text that is no UTF-8: -EINVAL. */
int index_builder_metadata(struct index_builder *b, const char *key, const char *value);
int index_builder_file(struct index_builder *b, const char *name, const void *data, size_t bytes);

/* Writes the index into a new memfd, sealed against everything, validates it
 * as a reader would, and tells its size. -EFBIG above INDEX_BYTES_MAX; -ENOSPC: no memory, or
 * RLIMIT_FSIZE. */
int index_builder_finish(struct index_builder *b, int *ret_fd, uint64_t *ret_bytes, struct error *error);

/* ---- as a memfd ------------------------------------------------------- */

/* An index mapped from its memfd (private, read-only). */
struct index_map {
	void *data;
	size_t bytes;
	struct index_view view;
};

/* The descriptor stays the caller's. trusted: see index_open_trusted.
 * -EBADMSG when the memfd is not of `bytes` bytes or not sealed. */
int index_map_open(int fd, uint64_t bytes, bool trusted, struct index_map *ret_map, struct error *error);
void index_map_close(struct index_map *map);

#endif
