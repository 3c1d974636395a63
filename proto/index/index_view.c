#include "index.h"

#include "../../base/grow.h"
#include "../../base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define DAMAGED(...) error_set(error, -EBADMSG, NULL, "the index " __VA_ARGS__)

static int open_header(const void *data, size_t bytes, struct index_view *view, struct error *error)
{
	const struct index_header *h = data;
	uint64_t heap;

	if (bytes < sizeof *h || bytes > INDEX_BYTES_MAX)
		return DAMAGED("has %zu bytes; 88 to %llu are possible", bytes,
			       (unsigned long long)INDEX_BYTES_MAX);
	if (memcmp(h->magic, INDEX_MAGIC, sizeof h->magic))
		return DAMAGED("does not begin with " INDEX_MAGIC);
	if (h->total_bytes != bytes)
		return DAMAGED("says that it has %llu bytes, but has %zu", (unsigned long long)h->total_bytes,
			       bytes);
	heap = index_sections(data, view);
	if (heap != h->heap_offset || heap > bytes)
		return DAMAGED("has sections that do not fit into it");
	if (h->segment_count > PART_SEGMENTS_MAX)
		return DAMAGED("has %u segments, the limit is %d", h->segment_count, PART_SEGMENTS_MAX);
	if (h->world == 0 || h->rank >= h->world)
		return DAMAGED("says rank %u of %u", h->rank, h->world);
	view->heap = (const char *)data + heap;
	return 0;
}

int index_open_trusted(const void *data, size_t bytes, struct index_view *ret_view, struct error *error)
{
	struct index_view view;
	int r = open_header(data, bytes, &view, error);

	if (r == 0)
		*ret_view = view;
	return r;
}

static uint64_t heap_bytes(const struct index_view *view)
{
	return view->header->total_bytes - view->header->heap_offset;
}

/* Whether these bytes lie in the heap. A text must also be UTF-8, have a zero behind it and no
 * other zero. */
static bool heap_has(const struct index_view *view, uint64_t at, uint64_t bytes)
{
	return at <= heap_bytes(view) && bytes <= heap_bytes(view) - at;
}

static bool heap_has_text(const struct index_view *view, uint64_t at, uint32_t bytes)
{
	return heap_has(view, at, (uint64_t)bytes + 1) && view->heap[at + bytes] == 0 &&
	       !memchr(view->heap + at, 0, bytes) && utf8_valid(view->heap + at);
}

/* Returns the alignment that an element needs: its size, as a power of two of bytes. Elements that share bytes need none. */
static uint64_t element_align(unsigned dtype)
{
	uint32_t bytes = dtype_element_bytes(dtype);

	return bytes ? bytes : 1;
}

static int check_shape(const struct index_view *view, const struct index_tensor *t, struct error *error)
{
	const char *name = view->heap + t->name;
	uint64_t bytes;

	if (!dtype_name(t->dtype))
		return error_set(
			error, -EBADMSG,
			"who makes the index may be newer than who checks it: run the same gpuwm on both sides",
			"the index gives \"%s\" the dtype %u, which this gpuwm does not know", name, t->dtype);
	if (t->ndim > TENSOR_DIMS_MAX)
		return DAMAGED("gives \"%s\" %u dimensions, the limit is %d", name, t->ndim, TENSOR_DIMS_MAX);
	if (t->dims > view->header->dim_count || 2u * t->ndim > view->header->dim_count - t->dims)
		return DAMAGED("puts the shape of \"%s\" outside of itself", name);
	if (dtype_bytes(t->dtype, t->ndim, index_shape(view, t), &bytes) < 0 || bytes != t->bytes)
		return DAMAGED("gives \"%s\" %llu bytes, which its shape and dtype are not", name,
			       (unsigned long long)t->bytes);
	if (!index_strides_dense(t->dtype, t->ndim, index_shape(view, t), index_strides(view, t)))
		return DAMAGED("gives \"%s\" strides that are no permutation of dense ones", name);
	return 0;
}

static int check_tensor(const struct index_view *view, uint32_t position, struct error *error)
{
	const struct index_tensor *t = &view->tensors[position];
	const char *name;

	if (t->name_bytes == 0 || t->name_bytes > TENSOR_NAME_BYTES_MAX ||
	    !heap_has_text(view, t->name, t->name_bytes))
		return DAMAGED("has a bad name for tensor %u", position);
	name = view->heap + t->name;
	if (position && strcmp(index_tensor_name(view, t - 1), name) >= 0)
		return DAMAGED("has \"%s\" twice or out of order", name);
	if (t->reserved)
		return DAMAGED("has a reserved field of \"%s\" that is not zero", name);
	if (check_shape(view, t, error) < 0)
		return -EBADMSG;
	if (t->segment >= view->header->segment_count)
		return DAMAGED("puts \"%s\" into segment %u of %u", name, t->segment,
			       view->header->segment_count);
	if (t->offset > view->segments[t->segment].bytes ||
	    t->bytes > view->segments[t->segment].bytes - t->offset)
		return DAMAGED("puts \"%s\" at %llu with %llu bytes, outside of segment %u with %llu bytes",
			       name, (unsigned long long)t->offset, (unsigned long long)t->bytes, t->segment,
			       (unsigned long long)view->segments[t->segment].bytes);
	if (t->offset % element_align(t->dtype))
		return DAMAGED("puts \"%s\" at %llu, which is not aligned to its elements", name,
			       (unsigned long long)t->offset);
	return 0;
}

static int by_place(const void *x, const void *y)
{
	const struct index_tensor *a = *(const struct index_tensor *const *)x;
	const struct index_tensor *b = *(const struct index_tensor *const *)y;

	if (a->segment != b->segment)
		return a->segment < b->segment ? -1 : 1;
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	return 0;
}

/* Any two tensors must be disjoint, or lie in the very same place and be equal. */
static int check_places(const struct index_view *view, struct error *error)
{
	uint32_t count = 0;
	const struct index_tensor **sorted = malloc((view->header->tensor_count + 1ull) * sizeof *sorted);
	int r = 0;

	if (!sorted)
		return error_set(error, -ENOMEM, NULL, "out of memory for checking an index");
	for (uint32_t i = 0; i < view->header->tensor_count; i++)
		if (view->tensors[i].bytes)
			sorted[count++] = &view->tensors[i];
	qsort(sorted, count, sizeof *sorted, by_place);
	for (uint32_t i = 1; i < count && r == 0; i++) {
		const struct index_tensor *a = sorted[i - 1], *b = sorted[i];
		bool tied =
			a->offset == b->offset && a->bytes == b->bytes && digest_equal(&a->digest, &b->digest);

		if (a->segment == b->segment && b->offset < a->offset + a->bytes && !tied)
			r = DAMAGED("lets \"%s\" and \"%s\" overlap", index_tensor_name(view, a),
				    index_tensor_name(view, b));
	}
	free(sorted);
	return r;
}

/* Two entries must not share bytes of the heap or of dims[]. Otherwise a small index could name so
 * many bytes that checking them would take hours. */
static int check_sums(const struct index_view *view, struct error *error)
{
	const struct index_header *h = view->header;
	uint64_t texts = 0, dims = 0;

	for (uint32_t i = 0; i < h->tensor_count; i++) {
		texts += view->tensors[i].name_bytes + 1ull;
		dims += 2ull * view->tensors[i].ndim;
	}
	for (uint32_t i = 0; i < h->metadata_count; i++)
		texts += view->metadata[i].key_bytes + 1ull + view->metadata[i].value_bytes + 1ull;
	for (uint32_t i = 0; i < h->file_count; i++)
		texts += view->files[i].name_bytes + 1ull + view->files[i].content_bytes;
	if (texts > heap_bytes(view))
		return DAMAGED("has names, texts and files of %llu bytes, but a heap of %llu",
			       (unsigned long long)texts, (unsigned long long)heap_bytes(view));
	if (dims > h->dim_count)
		return DAMAGED("has shapes and strides of %llu entries, but room for %llu",
			       (unsigned long long)dims, (unsigned long long)h->dim_count);
	return 0;
}

static int check_metadata(const struct index_view *view, struct error *error)
{
	for (uint32_t i = 0; i < view->header->metadata_count; i++) {
		const struct index_pair *p = &view->metadata[i];

		if (!heap_has_text(view, p->key, p->key_bytes) ||
		    !heap_has_text(view, p->value, p->value_bytes))
			return DAMAGED("has a bad text in metadata entry %u", i);
		if (i && strcmp(view->heap + p[-1].key, view->heap + p->key) >= 0)
			return DAMAGED("has the metadata key \"%s\" twice or out of order",
				       view->heap + p->key);
	}
	return 0;
}

static int check_files(const struct index_view *view, struct error *error)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < view->header->file_count; i++) {
		const struct index_file *f = &view->files[i];

		if (!f->name_bytes || !heap_has_text(view, f->name, f->name_bytes) ||
		    !heap_has(view, f->content, f->content_bytes))
			return DAMAGED("has a bad name or content for file %u", i);
		if (i && strcmp(view->heap + f[-1].name, view->heap + f->name) >= 0)
			return DAMAGED("has the file \"%s\" twice or out of order", view->heap + f->name);
		total += f->content_bytes;
	}
	if (total > INDEX_FILES_BYTES_MAX)
		return DAMAGED("has files of %llu bytes in all, the limit is %llu", (unsigned long long)total,
			       (unsigned long long)INDEX_FILES_BYTES_MAX);
	return 0;
}

int index_open(const void *data, size_t bytes, struct index_view *ret_view, struct error *error)
{
	struct index_view view;
	struct digest layout, content;
	int r = open_header(data, bytes, &view, error);

	if (r == 0)
		r = check_sums(&view, error);
	for (uint32_t i = 0; r == 0 && i < view.header->tensor_count; i++)
		r = check_tensor(&view, i, error);
	if (r == 0)
		r = check_places(&view, error);
	if (r == 0)
		r = check_metadata(&view, error);
	if (r == 0)
		r = check_files(&view, error);
	if (r < 0)
		return r;
	layout = index_layout_digest(&view);
	content = index_content_digest(&view);
	if (!digest_equal(&layout, &view.header->layout))
		return DAMAGED("has a layout digest that is not its layout's");
	if (!digest_equal(&content, &view.header->content))
		return DAMAGED("has a content digest that is not its content's");
	*ret_view = view;
	return 0;
}

/* Finds a text in a table. Each item of a table begins with the offset of its text in the heap, and
 * the table is sorted by these texts. */
static int64_t view_find(const struct index_view *view, const void *table, uint32_t count, size_t item_bytes,
			 const char *name)
{
	int64_t low = 0, high = count;

	while (low < high) {
		int64_t middle = low + (high - low) / 2;
		const uint64_t *text = (const void *)((const char *)table + (size_t)middle * item_bytes);
		int order = strcmp(view->heap + *text, name);

		if (order == 0)
			return middle;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return -ENOENT;
}

int64_t index_find(const struct index_view *view, const char *name)
{
	return view_find(view, view->tensors, view->header->tensor_count, sizeof *view->tensors, name);
}

const char *index_tensor_name(const struct index_view *view, const struct index_tensor *tensor)
{
	return view->heap + tensor->name;
}

const uint64_t *index_shape(const struct index_view *view, const struct index_tensor *tensor)
{
	return view->dims + tensor->dims;
}

const int64_t *index_strides(const struct index_view *view, const struct index_tensor *tensor)
{
	return (const int64_t *)(view->dims + tensor->dims + tensor->ndim);
}

const char *index_metadata(const struct index_view *view, const char *key)
{
	int64_t i = view_find(view, view->metadata, view->header->metadata_count, sizeof *view->metadata, key);

	return i < 0 ? NULL : view->heap + view->metadata[i].value;
}

const void *index_file(const struct index_view *view, const char *name, uint32_t *ret_bytes)
{
	int64_t i = view_find(view, view->files, view->header->file_count, sizeof *view->files, name);

	if (i < 0)
		return NULL;
	*ret_bytes = view->files[i].content_bytes;
	return view->heap + view->files[i].content;
}

/* ---- as a memfd ---- */

/* Asks for the seals first: on a descriptor of a dead FUSE server fstat would hang. If the file is
 * not a memfd, it has no seals. If the call failed for another reason, that says nothing about the
 * index. */
static int check_memfd(int fd, uint64_t bytes, struct error *error)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat status;

	if (seals < 0 && (errno == EINVAL || errno == EBADF))
		return error_set(error, -EBADMSG, "an index is a sealed memfd",
				 "the descriptor of the index is no memfd");
	if (seals >= 0 && (seals & SEALS_ALL) != SEALS_ALL)
		return error_set(error, -EBADMSG, "seal it with F_SEAL_SEAL, _SHRINK, _GROW and _WRITE",
				 "the index's memfd is not sealed");
	if (seals < 0 || fstat(fd, &status) < 0)
		return error_set(error, -errno, NULL, "the index's memfd could not be looked at: %s",
				 strerror(errno));
	if ((uint64_t)status.st_size != bytes || bytes > INDEX_BYTES_MAX || bytes == 0)
		return error_set(error, -EBADMSG, NULL, "the index's memfd is not of %llu bytes",
				 (unsigned long long)bytes);
	return 0;
}

int index_map_open(int fd, uint64_t bytes, bool trusted, struct index_map *ret_map, struct error *error)
{
	struct index_map map = {.bytes = bytes};
	int r = check_memfd(fd, bytes, error);

	if (r < 0)
		return r;
	map.data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map.data == MAP_FAILED)
		return error_set(error, -errno, NULL, "mapping an index of %llu bytes: %s",
				 (unsigned long long)bytes, strerror(errno));
	r = trusted ? index_open_trusted(map.data, bytes, &map.view, error)
		    : index_open(map.data, bytes, &map.view, error);
	if (r < 0) {
		munmap(map.data, bytes);
		return r;
	}
	*ret_map = map;
	return 0;
}

void index_map_close(struct index_map *map)
{
	if (map->data)
		munmap(map->data, map->bytes);
	*map = (struct index_map){0};
}
