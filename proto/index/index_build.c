#include "index.h"

#include "../../base/grow.h"
#include "../../base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* An array that grows by doubling. */
struct array {
	void *items;
	size_t count, room;
};

/* Returns room for `more` items, or NULL if there is no memory. */
static void *array_add(struct array *a, size_t item_bytes, size_t more)
{
	void *place;

	if (a->count + more > a->room) {
		size_t room = (a->count + more) * 2;
		void *items = realloc(a->items, room * item_bytes);

		if (!items)
			return NULL;
		a->items = items;
		a->room = room;
	}
	place = (char *)a->items + a->count * item_bytes;
	a->count += more;
	return place;
}

struct index_builder {
	uint32_t rank, world;
	struct array segments, tensors, metadata, files; /* in the order in which they were added */
	struct array dims; /* of uint64_t */
	struct array heap; /* of char */
	void *keys, *file_names; /* trees (tsearch) of the texts that were added already */
	uint64_t file_bytes;
};

struct index_builder *index_builder_new(uint32_t rank, uint32_t world)
{
	struct index_builder *b = calloc(1, sizeof *b);

	if (b) {
		b->rank = rank;
		b->world = world;
	}
	return b;
}

struct index_builder *index_builder_free(struct index_builder *b)
{
	if (!b)
		return NULL;
	free(b->segments.items);
	free(b->tensors.items);
	free(b->metadata.items);
	free(b->files.items);
	free(b->dims.items);
	free(b->heap.items);
	tdestroy(b->keys, free);
	tdestroy(b->file_names, free);
	free(b);
	return NULL;
}

int index_builder_segment(struct index_builder *b, uint64_t bytes)
{
	struct index_segment *s;

	if (b->segments.count == PART_SEGMENTS_MAX)
		return -EFBIG;
	s = array_add(&b->segments, sizeof *s, 1);
	if (!s)
		return -ENOMEM;
	s->bytes = bytes;
	return 0;
}

/* Copies bytes into the heap; for a text its zero too. */
static int heap_add(struct index_builder *b, const void *data, size_t bytes, uint64_t *ret_at)
{
	uint64_t at = b->heap.count;
	char *place;

	if (at + bytes > INDEX_BYTES_MAX)
		return -EFBIG;
	place = array_add(&b->heap, 1, bytes);
	if (!place)
		return -ENOMEM;
	if (bytes)
		memcpy(place, data, bytes);
	*ret_at = at;
	return 0;
}

static int dims_add(struct index_builder *b, const struct index_tensor_spec *spec, uint64_t *ret_at)
{
	uint64_t stride = 1, *dims;

	*ret_at = b->dims.count;
	if (!spec->ndim)
		return 0;
	dims = array_add(&b->dims, sizeof *dims, 2 * (size_t)spec->ndim);
	if (!dims)
		return -ENOMEM;
	memcpy(dims, spec->shape, spec->ndim * sizeof *dims);
	if (spec->strides) {
		memcpy(dims + spec->ndim, spec->strides, spec->ndim * sizeof *dims);
		return 0;
	}
	for (unsigned i = spec->ndim; i-- > 0;) {
		dims[spec->ndim + i] = stride;
		stride *= spec->shape[i] ? spec->shape[i] : 1;
	}
	return 0;
}

int index_builder_tensor(struct index_builder *b, const struct index_tensor_spec *spec, struct error *error)
{
	size_t name_bytes = strlen(spec->name);
	struct index_tensor *t, tensor = {.segment = spec->segment, .offset = spec->offset};
	int r;

	if (spec->ndim > TENSOR_DIMS_MAX)
		return error_set(error, -EINVAL, NULL, "tensor \"%s\" has %u dimensions, the limit is %d",
				 spec->name, spec->ndim, TENSOR_DIMS_MAX);
	if (!name_bytes || name_bytes > TENSOR_NAME_BYTES_MAX)
		return error_set(error, -EINVAL, NULL, "a tensor's name has %zu bytes; 1 to %d are possible",
				 name_bytes, TENSOR_NAME_BYTES_MAX);
	if (!utf8_valid(spec->name))
		return error_set(error, -EINVAL, "names are UTF-8",
				 "the name of tensor %zu, \"%s\", is not UTF-8", b->tensors.count, spec->name);
	if (dtype_bytes(spec->dtype, spec->ndim, spec->shape, &tensor.bytes) < 0)
		return error_set(error, -EINVAL, NULL, "tensor \"%s\" has no whole number of bytes",
				 spec->name);
	if (spec->strides && !index_strides_dense(spec->dtype, spec->ndim, spec->shape, spec->strides))
		return error_set(error, -EINVAL, "copy it to a contiguous tensor first",
				 "tensor \"%s\" has strides that are no permutation of dense ones", spec->name);
	tensor.dtype = (uint16_t)spec->dtype;
	tensor.ndim = (uint16_t)spec->ndim;
	tensor.name_bytes = (uint32_t)name_bytes;
	r = heap_add(b, spec->name, name_bytes + 1, &tensor.name);
	if (r == 0)
		r = dims_add(b, spec, &tensor.dims);
	t = r == 0 ? array_add(&b->tensors, sizeof *t, 1) : NULL;
	if (!t)
		return error_set(error, r ? r : -ENOMEM, NULL, "%s while adding tensor \"%s\" to an index",
				 r == -EFBIG ? "larger than 288 MiB" : "out of memory", spec->name);
	*t = tensor;
	return 0;
}

void index_builder_spec(const struct index_builder *b, size_t position, struct index_tensor_spec *ret)
{
	const struct index_tensor *t = (const struct index_tensor *)b->tensors.items + position;
	const uint64_t *dims = (const uint64_t *)b->dims.items + t->dims;

	*ret = (struct index_tensor_spec){
		.name = (const char *)b->heap.items + t->name,
		.dtype = t->dtype,
		.ndim = t->ndim,
		.shape = dims,
		.strides = (const int64_t *)dims + t->ndim,
		.segment = t->segment,
		.offset = t->offset,
	};
}

int index_builder_digest(struct index_builder *b, size_t position, const struct digest *digest)
{
	if (position >= b->tensors.count)
		return -ERANGE;
	((struct index_tensor *)b->tensors.items)[position].digest = *digest;
	return 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Fails with -EEXIST if the tree has the text already. */
static int remember(void **tree, const char *text)
{
	char *copy = strdup(text);
	char **node = copy ? tsearch(copy, tree, by_text) : NULL;

	if (!node || *node != copy) {
		free(copy);
		return node ? -EEXIST : -ENOMEM;
	}
	return 0;
}

static void texts_forget(void **tree, const char *text)
{
	char **node = tfind(text, tree, by_text);
	char *copy = *node;

	tdelete(text, tree, by_text);
	free(copy);
}

static int metadata_add(struct index_builder *b, const char *key, const char *value)
{
	const size_t key_bytes = strlen(key), value_bytes = strlen(value);
	struct index_pair *p, pair = {.key_bytes = (uint32_t)key_bytes, .value_bytes = (uint32_t)value_bytes};
	int r = heap_add(b, key, key_bytes + 1, &pair.key);

	if (r == 0)
		r = heap_add(b, value, value_bytes + 1, &pair.value);
	if (r < 0)
		return r;
	p = array_add(&b->metadata, sizeof *p, 1);
	if (!p)
		return -ENOMEM;
	*p = pair;
	return 0;
}

int index_builder_metadata(struct index_builder *b, const char *key, const char *value)
{
	int r = utf8_valid(key) && utf8_valid(value) ? remember(&b->keys, key) : -EINVAL;

	if (r < 0)
		return r;
	r = metadata_add(b, key, value);
	if (r < 0)
		texts_forget(&b->keys, key);
	return r;
}

static int file_add(struct index_builder *b, const char *name, const void *data, size_t bytes)
{
	const size_t name_bytes = strlen(name);
	struct index_file *f, file = {.name_bytes = (uint32_t)name_bytes, .content_bytes = (uint32_t)bytes};
	int r;

	if (bytes > INDEX_FILES_BYTES_MAX - b->file_bytes)
		return -EFBIG;
	r = heap_add(b, name, name_bytes + 1, &file.name);
	if (r == 0)
		r = heap_add(b, data, bytes, &file.content);
	if (r < 0)
		return r;
	f = array_add(&b->files, sizeof *f, 1);
	if (!f)
		return -ENOMEM;
	*f = file;
	b->file_bytes += bytes;
	return 0;
}

int index_builder_file(struct index_builder *b, const char *name, const void *data, size_t bytes)
{
	int r = *name && utf8_valid(name) ? remember(&b->file_names, name) : -EINVAL;

	if (r < 0)
		return r;
	r = file_add(b, name, data, bytes);
	if (r < 0)
		texts_forget(&b->file_names, name);
	return r;
}

/* Each of the three tables begins with the offset of its name in the heap. */
static int by_name(const void *x, const void *y, void *heap)
{
	return strcmp((char *)heap + *(const uint64_t *)x, (char *)heap + *(const uint64_t *)y);
}

static char *copy_section(char *to, const struct array *a, size_t item_bytes, void *heap)
{
	if (a->count) {
		memcpy(to, a->items, a->count * item_bytes);
		if (heap)
			qsort_r(to, a->count, item_bytes, by_name, heap);
	}
	return to + a->count * item_bytes;
}

static uint64_t total_bytes(const struct index_builder *b)
{
	return sizeof(struct index_header) + b->segments.count * sizeof(struct index_segment) +
	       b->tensors.count * sizeof(struct index_tensor) + b->metadata.count * sizeof(struct index_pair) +
	       b->files.count * sizeof(struct index_file) + b->dims.count * sizeof(uint64_t) + b->heap.count;
}

/* Writes the whole index into `data`, sorted and with its digests. */
static void index_fill(const struct index_builder *b, char *data, uint64_t bytes)
{
	struct index_header *h = (struct index_header *)data;
	struct index_view view;
	char *at = data + sizeof *h;

	*h = (struct index_header){
		.total_bytes = bytes,
		.rank = b->rank,
		.world = b->world,
		.segment_count = (uint32_t)b->segments.count,
		.tensor_count = (uint32_t)b->tensors.count,
		.metadata_count = (uint32_t)b->metadata.count,
		.file_count = (uint32_t)b->files.count,
		.dim_count = b->dims.count,
		.heap_offset = bytes - b->heap.count,
	};
	memcpy(h->magic, INDEX_MAGIC, sizeof h->magic);
	at = copy_section(at, &b->segments, sizeof(struct index_segment), NULL);
	at = copy_section(at, &b->tensors, sizeof(struct index_tensor), b->heap.items);
	at = copy_section(at, &b->metadata, sizeof(struct index_pair), b->heap.items);
	at = copy_section(at, &b->files, sizeof(struct index_file), b->heap.items);
	at = copy_section(at, &b->dims, sizeof(uint64_t), NULL);
	copy_section(at, &b->heap, 1, NULL);
	index_sections(data, &view);
	view.heap = at;
	h->layout = index_layout_digest(&view);
	h->content = index_content_digest(&view);
}

static int write_sealed(int fd, const void *data, uint64_t bytes, struct error *error)
{
	int r = file_grow(fd, bytes, "no room for an index", "see free -m", error);

	if (r < 0)
		return r;
	r = file_write_all(fd, data, bytes);
	if (r < 0)
		return error_set(error, r, NULL, "writing an index of %llu bytes: %s",
				 (unsigned long long)bytes, strerror(-r));
	if (fcntl(fd, F_ADD_SEALS, SEALS_ALL) < 0)
		return error_set(error, -errno, NULL, "sealing an index: %s", strerror(errno));
	return 0;
}

int index_builder_finish_in(struct index_builder *b, int fd, uint64_t *ret_bytes, struct error *error)
{
	uint64_t bytes = total_bytes(b);
	struct index_view view;
	void *data;
	int r;

	if (bytes > INDEX_BYTES_MAX)
		return error_set(error, -EFBIG, NULL, "the index has %llu bytes, the limit is %llu",
				 (unsigned long long)bytes, (unsigned long long)INDEX_BYTES_MAX);
	data = malloc(bytes);
	if (!data)
		return error_set(error, -ENOMEM, NULL, "out of memory for an index of %llu bytes",
				 (unsigned long long)bytes);
	index_fill(b, data, bytes);
	r = index_open(data, bytes, &view, error);
	if (r == 0)
		r = write_sealed(fd, data, bytes, error);
	if (r == 0)
		*ret_bytes = bytes;
	free(data);
	return r;
}

static int index_memfd(int *ret_fd, struct error *error)
{
	*ret_fd = memfd_create("gpuwm-index", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return *ret_fd < 0 ? error_set(error, -errno, NULL, "memfd_create for an index: %s", strerror(errno))
			   : 0;
}

int index_copy(const void *data, uint64_t bytes, int *ret_fd, struct error *error)
{
	int fd, r = index_memfd(&fd, error);

	if (r < 0)
		return r;
	r = write_sealed(fd, data, bytes, error);
	if (r < 0)
		close(fd);
	else
		*ret_fd = fd;
	return r;
}

int index_builder_finish(struct index_builder *b, int *ret_fd, uint64_t *ret_bytes, struct error *error)
{
	int fd, r = index_memfd(&fd, error);

	if (r < 0)
		return r;
	r = index_builder_finish_in(b, fd, ret_bytes, error);
	if (r < 0)
		close(fd);
	else
		*ret_fd = fd;
	return r;
}
