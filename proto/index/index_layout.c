#include "index.h"

#include <string.h>

uint64_t index_sections(const void *data, struct index_view *view)
{
	const struct index_header *h = data;
	uint64_t at = sizeof *h, dims;

	view->header = h;
	view->segments = (const void *)((const char *)data + at);
	at += (uint64_t)h->segment_count * sizeof *view->segments;
	view->tensors = (const void *)((const char *)data + at);
	at += (uint64_t)h->tensor_count * sizeof *view->tensors;
	view->metadata = (const void *)((const char *)data + at);
	at += (uint64_t)h->metadata_count * sizeof *view->metadata;
	view->files = (const void *)((const char *)data + at);
	at += (uint64_t)h->file_count * sizeof *view->files;
	view->dims = (const void *)((const char *)data + at);
	if (__builtin_mul_overflow(h->dim_count, (uint64_t)8, &dims) || __builtin_add_overflow(at, dims, &at))
		return UINT64_MAX;
	return at;
}

/* Digests a byte string while it is being made. */
struct stream {
	struct digest_sum sum;
	uint64_t bytes;
};

static void add_bytes(struct stream *s, const void *data, uint64_t bytes)
{
	digest_update(&s->sum, s->bytes, data, bytes);
	s->bytes += (bytes + 7) / 8 * 8;
}

static void add_u64(struct stream *s, uint64_t value)
{
	add_bytes(s, &value, sizeof value);
}

struct digest index_layout_digest(const struct index_view *view)
{
	struct stream s = {0};

	add_bytes(&s, view->segments, (uint64_t)view->header->segment_count * sizeof *view->segments);
	for (uint32_t i = 0; i < view->header->tensor_count; i++) {
		const struct index_tensor *t = &view->tensors[i];

		add_u64(&s, t->name_bytes);
		add_bytes(&s, view->heap + t->name, t->name_bytes);
		add_u64(&s, t->dtype);
		add_u64(&s, t->ndim);
		add_bytes(&s, view->dims + t->dims, 16 * (uint64_t)t->ndim);
		add_u64(&s, t->segment);
		add_u64(&s, t->offset);
	}
	return digest_final(&s.sum, s.bytes);
}

struct digest index_content_digest(const struct index_view *view)
{
	struct stream s = {0};

	add_bytes(&s, &view->header->layout, sizeof view->header->layout);
	for (uint32_t i = 0; i < view->header->tensor_count; i++)
		add_bytes(&s, &view->tensors[i].digest, sizeof view->tensors[i].digest);
	for (uint32_t i = 0; i < view->header->metadata_count; i++) {
		const struct index_pair *p = &view->metadata[i];

		add_u64(&s, p->key_bytes);
		add_u64(&s, p->value_bytes);
		add_bytes(&s, view->heap + p->key, p->key_bytes);
		add_bytes(&s, view->heap + p->value, p->value_bytes);
	}
	for (uint32_t i = 0; i < view->header->file_count; i++) {
		const struct index_file *f = &view->files[i];
		struct digest content = digest_of(view->heap + f->content, f->content_bytes);

		add_u64(&s, f->name_bytes);
		add_u64(&s, f->content_bytes);
		add_bytes(&s, view->heap + f->name, f->name_bytes);
		add_bytes(&s, &content, sizeof content);
	}
	return digest_final(&s.sum, s.bytes);
}

/* Returns the dimension with this stride that has no place yet; ndim: there is none. It begins with the last one: if the order
 * is plain, the first try is right. */
static unsigned dimension_of_stride(unsigned ndim, const int64_t *strides, uint64_t used, uint64_t stride)
{
	for (unsigned i = ndim; i-- > 0;)
		if (!(used >> i & 1) && strides[i] > 0 && (uint64_t)strides[i] == stride)
			return i;
	return ndim;
}

bool index_strides_dense(unsigned dtype, unsigned ndim, const uint64_t *shape, const int64_t *strides)
{
	/* `used` has a bit for each dimension that has its place. */
	uint64_t expected = 1, used = 0;
	unsigned left = 0;

	for (unsigned i = 0; i < ndim; i++) {
		if (shape[i] == 0)
			return true;
		if (shape[i] == 1)
			used |= 1ull << i;
		else
			left++;
	}
	for (; left; left--) {
		unsigned i = dimension_of_stride(ndim, strides, used, expected);

		if (i == ndim)
			return false;
		if (!dtype_element_bytes(dtype))
			for (unsigned j = i + 1; j < ndim; j++)
				if (!(used >> j & 1))
					return false;
		used |= 1ull << i;
		if (__builtin_mul_overflow(expected, shape[i], &expected))
			return false;
	}
	return true;
}
