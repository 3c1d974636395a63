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
#include "../../base/errors.h"

#include <assert.h>
#include <stddef.h>

#define INDEX_MAGIC "GPUWMIX1"

struct index_header {
	char magic[8];
	uint64_t total_bytes; /* the size of the whole index */
	uint32_t rank, world;
	uint32_t segment_count, tensor_count, metadata_count, file_count;
	uint64_t dim_count;
	uint64_t heap_offset; /* where the bytes section begins */
	struct digest layout; /* digest of segments, names, dtypes, shapes, strides and places */
	struct digest content; /* digest of the layout, every tensor's digest, metadata and files */
};

struct index_segment {
	uint64_t bytes; /* the exact size of the memory behind its descriptor */
};

struct index_tensor {
	uint64_t name; /* offset in the heap */
	uint32_t name_bytes;
	uint16_t dtype;
	uint16_t ndim;
	uint32_t segment;
	uint32_t reserved; /* must be 0 */
	uint64_t offset; /* in the segment, in bytes */
	uint64_t bytes;
	uint64_t dims; /* position of the first entry in dims[] */
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

static_assert(sizeof(struct index_header) == 88, "the wire format");
static_assert(sizeof(struct index_tensor) == 64, "the wire format");
static_assert(sizeof(struct index_pair) == 24, "the wire format");
static_assert(sizeof(struct index_file) == 24, "the wire format");

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the index is read in place");
static_assert(offsetof(struct index_tensor, name) == 0 && offsetof(struct index_pair, key) == 0 &&
		      offsetof(struct index_file, name) == 0,
	      "sorting and finding: each table begins with the offset of its name in the heap");

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

/* Checks an index completely, once: magic, sizes, offsets, order and uniqueness of names,
 * terminating zeros, dtypes, shapes against bytes, that strides are a permutation of dense ones,
 * that offsets are aligned to the element, that tensors lie inside their segments, that any two
 * tensors are either disjoint or tied (in the very same place with the same digest), and both
 * digests of the header. Takes O(n log n).
 *
 * Returns 0 and sets *ret_view. Fails with -EBADMSG; *error names the fault. */
int index_open(const void *data, size_t bytes, struct index_view *ret_view, struct error *error);

/* Opens an index that a checker has passed: checks only the header and the bounds of the sections,
 * in constant time. Otherwise as index_open. */
int index_open_trusted(const void *data, size_t bytes, struct index_view *ret_view, struct error *error);

/* Returns the position of the tensor with this name, in O(log n), or -ENOENT. */
int64_t index_find(const struct index_view *view, const char *name);
const char *index_tensor_name(const struct index_view *view, const struct index_tensor *tensor);
/* Both return arrays of ndim entries. */
const uint64_t *index_shape(const struct index_view *view, const struct index_tensor *tensor);
const int64_t *index_strides(const struct index_view *view, const struct index_tensor *tensor);
/* Returns the text with this key, or NULL if there is none. */
const char *index_metadata(const struct index_view *view, const char *key);
/* Returns the content of the file with this name and sets *ret_bytes, or returns NULL if there is
 * none. */
const void *index_file(const struct index_view *view, const char *name, uint32_t *ret_bytes);

/* ---- what reading and building share ----------------------------------- */

/* Sets the section pointers of a view from the counts in its header. Returns the offset of the end
 * of the dims section, where the heap begins, or UINT64_MAX if the counts overflow. */
uint64_t index_sections(const void *data, struct index_view *view);

/* Compute the digests that docs/protocol.md describes, over a view whose sections are sound. */
struct digest index_layout_digest(const struct index_view *view);
struct digest index_content_digest(const struct index_view *view);

/* Returns whether the strides are a permutation of dense ones. The strides of dimensions of size 1
 * do not matter, and those of an empty tensor do not either. Elements that share bytes must have
 * the plain order. */
bool index_strides_dense(unsigned dtype, unsigned ndim, const uint64_t *shape, const int64_t *strides);

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

/* The builder copies everything that it gets. Returns NULL if there is no memory. */
struct index_builder *index_builder_new(uint32_t rank, uint32_t world);
struct index_builder *index_builder_free(struct index_builder *b);
int index_builder_segment(struct index_builder *b, uint64_t bytes);
int index_builder_tensor(struct index_builder *b, const struct index_tensor_spec *spec, struct error *error);
/* Sets *ret to the tensor that was added as number `position`. Its pointers are valid until the
 * next call on the builder. */
void index_builder_spec(const struct index_builder *b, size_t position, struct index_tensor_spec *ret);
/* Sets the digest of the tensor that was added as number `position`. */
int index_builder_digest(struct index_builder *b, size_t position, const struct digest *digest);
/* Both fail with -EEXIST if the key or name was added already, with -EFBIG above
 * INDEX_FILES_BYTES_MAX, and with -EINVAL if the name is empty or a text is not UTF-8. */
int index_builder_metadata(struct index_builder *b, const char *key, const char *value);
int index_builder_file(struct index_builder *b, const char *name, const void *data, size_t bytes);

/* Writes the index into a new memfd, seals it against every change, and validates it as a reader
 * would. Returns 0 and sets *ret_fd, which the caller owns, and *ret_bytes. Fails with -EFBIG above
 * INDEX_BYTES_MAX, and with -ENOSPC if there is no memory or RLIMIT_FSIZE is in the way. */
int index_builder_finish(struct index_builder *b, int *ret_fd, uint64_t *ret_bytes, struct error *error);
/* Writes, seals and validates the index in the same way, in an empty memfd, which stays the caller's. */
int index_builder_finish_in(struct index_builder *b, int fd, uint64_t *ret_bytes, struct error *error);

/* Puts a copy of a finished index into a new memfd, and seals it. Sets *ret_fd, which the caller owns. Fails with -ENOSPC as
 * index_builder_finish. */
int index_copy(const void *data, uint64_t bytes, int *ret_fd, struct error *error);

/* ---- as a memfd ------------------------------------------------------- */

/* An index mapped from its memfd (private, read-only). */
struct index_map {
	void *data;
	size_t bytes;
	struct index_view view;
};

/* Maps an index from its memfd. The descriptor stays the caller's. `trusted` says whether to open
 * it by index_open_trusted. Returns 0 and sets *ret_map, for index_map_close. Fails with -EBADMSG
 * if the memfd does not have `bytes` bytes or is not sealed, and with the codes of index_open. */
int index_map_open(int fd, uint64_t bytes, bool trusted, struct index_map *ret_map, struct error *error);
void index_map_close(struct index_map *map);

#endif
