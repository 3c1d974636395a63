/* Mutates indices that are valid and opens them: fuzz_index [iterations [seed]].
 * Build it with the sanitizers. Most mutations are digested anew, so that the
 * checks before and behind the digests are both reached. What is accepted must
 * keep the rules of proto/index/index.h, seen with other eyes. */
#include "../../proto/index/index.h"
#include "fuzz.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Dense tensors behind each other, some tied, some empty, some transposed. */
static void add_tensors(struct index_builder *b, uint32_t count)
{
	static const unsigned dtypes[] = {DTYPE_F4, DTYPE_U8, DTYPE_BF16, DTYPE_F32, DTYPE_I64, DTYPE_Q8_0};
	struct error error;
	uint64_t at = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t shape[3] = {draw(4), 1 + draw(3), 2 * (1 + draw(4))}, bytes;
		int64_t transposed[3] = {(int64_t)shape[1], 1, (int64_t)(shape[0] * shape[1])};
		char name[32];
		struct index_tensor_spec spec = {
			.name = name, .dtype = dtypes[draw(6)], .ndim = 3, .shape = shape, .offset = at};
		struct digest digest = digest_of(shape, sizeof(shape));

		snprintf(name, sizeof(name), "tensor.%u", i);
		if (dtype_family(spec.dtype) == DTYPE_GGUF)
			shape[2] = dtype_block(spec.dtype).elements;
		else if (dtype_element_bytes(spec.dtype) && draw(2))
			spec.strides = transposed;
		must(index_builder_tensor(b, &spec, &error) == 0, error.message);
		must(index_builder_digest(b, i, &digest) == 0, "no digest");
		dtype_bytes(spec.dtype, 3, shape, &bytes);
		if (draw(4))
			at += (bytes + 7) / 8 * 8;
		else
			count = i + 1; /* the next one would have to be tied */
	}
}

static void *make_seed(size_t *ret_bytes)
{
	struct index_builder *b = index_builder_new(0, 1 + (uint32_t)draw(3));
	uint64_t bytes = 0;
	struct error error;
	void *data;
	int fd = -1;

	must(b, "out of memory");
	must(index_builder_segment(b, 4096) == 0 && index_builder_segment(b, 512) == 0, "no segment");
	add_tensors(b, (uint32_t)draw(8));
	for (uint64_t i = draw(3); i > 0; i--)
		must(index_builder_metadata(b, i == 1 ? "format" : "key", "text") == 0, "no text");
	for (uint64_t i = draw(3); i > 0; i--)
		must(index_builder_file(b, i == 1 ? "config.json" : "b", "{\"a\":0}", 7) == 0, "no file");
	must(index_builder_finish(b, &fd, &bytes, &error) == 0, error.message);
	data = malloc(bytes);
	must(data && pread(fd, data, bytes, 0) == (ssize_t)bytes, "no seed");
	close(fd);
	index_builder_free(b);
	*ret_bytes = bytes;
	return data;
}

static void mutate(uint8_t *data, size_t bytes)
{
	static const uint64_t numbers[] = {0,    1,     2,          7,          8,          64,        255,
					   4096, 65535, UINT32_MAX, 1ull << 32, 1ull << 63, UINT64_MAX};
	size_t at = draw(bytes), width = (size_t)1 << draw(4);
	uint64_t number = numbers[draw(sizeof(numbers) / 8)];

	switch (draw(4)) {
	case 0:
		data[at] ^= (uint8_t)(1 << draw(8));
		break;
	case 1:
		data[at] = (uint8_t)(data[at] + draw(17) - 8);
		break;
	case 2: /* a number where numbers are */
		at = at / width * width;
		if (at + width <= bytes)
			memcpy(data + at, &number, width);
		break;
	default: /* one field as another */
		at = at / 8 * 8;
		if (at + 8 <= bytes)
			memcpy(data + at, data + draw(bytes / 8) * 8, 8);
		break;
	}
}

/* Only where all that is digested lies inside. */
static void redigest(void *data, size_t bytes)
{
	struct index_header *h = data;
	struct index_view view;
	uint64_t heap;

	if (bytes < sizeof(*h) || index_sections(data, &view) != h->heap_offset || h->heap_offset > bytes)
		return;
	heap = bytes - h->heap_offset;
	view.heap = (char *)data + h->heap_offset;
	for (uint32_t i = 0; i < h->tensor_count; i++) {
		const struct index_tensor *t = &view.tensors[i];

		if (t->name > heap || t->name_bytes > heap - t->name || t->dims > h->dim_count ||
		    2ull * t->ndim > h->dim_count - t->dims)
			return;
	}
	for (uint32_t i = 0; i < h->metadata_count; i++) {
		const struct index_pair *p = &view.metadata[i];

		if (p->key > heap || p->key_bytes > heap - p->key || p->value > heap ||
		    p->value_bytes > heap - p->value)
			return;
	}
	for (uint32_t i = 0; i < h->file_count; i++) {
		const struct index_file *f = &view.files[i];

		if (f->name > heap || f->name_bytes > heap - f->name || f->content > heap ||
		    f->content_bytes > heap - f->content)
			return;
	}
	h->layout = index_layout_digest(&view);
	h->content = index_content_digest(&view);
}

/* Every element's place, counted: all bytes of the tensor, each once. */
static void check_strides(const struct index_view *view, const struct index_tensor *t)
{
	const uint64_t *shape = index_shape(view, t);
	const int64_t *strides = index_strides(view, t);
	const struct dtype_block block = dtype_block(t->dtype);
	const uint64_t elements = t->bytes / block.bytes * block.elements;
	uint8_t *seen = calloc(1, elements + 1);

	must(seen, "out of memory");
	for (uint64_t i = 0; i < elements; i++) {
		uint64_t rest = i, place = 0;

		for (unsigned d = t->ndim; d-- > 0; rest /= shape[d])
			place += rest % shape[d] * (shape[d] > 1 ? (uint64_t)strides[d] : 0);
		must(place < elements && !seen[place], "strides that are no permutation were accepted");
		seen[place] = 1;
	}
	free(seen);
}

static void check_pair(const struct index_tensor *a, const struct index_tensor *b)
{
	bool apart = a->segment != b->segment || !a->bytes || !b->bytes || a->offset + a->bytes <= b->offset ||
		     b->offset + b->bytes <= a->offset;
	bool tied = a->offset == b->offset && a->bytes == b->bytes && digest_equal(&a->digest, &b->digest);

	must(apart || tied, "tensors that overlap were accepted");
}

static void check_accepted(const struct index_view *view, size_t bytes)
{
	const char *end = (const char *)view->header + bytes;
	uint32_t count;

	for (uint32_t i = 0; i < view->header->tensor_count; i++) {
		const struct index_tensor *t = &view->tensors[i];
		const char *name = index_tensor_name(view, t);

		must(name >= view->heap && name + strlen(name) < end && strlen(name) == t->name_bytes,
		     "a bad name was accepted");
		must(index_find(view, name) == i, "a name is not found");
		must(t->segment < view->header->segment_count &&
			     t->offset + t->bytes <= view->segments[t->segment].bytes,
		     "a place outside was accepted");
		check_strides(view, t);
		for (uint32_t j = 0; j < i; j++)
			check_pair(&view->tensors[j], t);
	}
	for (uint32_t i = 0; i < view->header->metadata_count; i++) {
		const char *value = index_metadata(view, view->heap + view->metadata[i].key);

		must(value && value + strlen(value) < end, "a text is not found");
	}
	for (uint32_t i = 0; i < view->header->file_count; i++) {
		const char *file = index_file(view, view->heap + view->files[i].name, &count);

		must(file && file + count <= end, "a file is not found");
	}
}

static bool open_copy(const void *data, size_t bytes)
{
	struct index_view view;
	struct error error = {0};
	void *copy = malloc(bytes ? bytes : 1);
	int r;

	must(copy, "out of memory");
	memcpy(copy, data, bytes);
	index_open_trusted(copy, bytes, &view, &error);
	r = index_open(copy, bytes, &view, &error);
	must(r == 0 || (r == -EBADMSG && *error.message), "refused otherwise than as damaged");
	if (r == 0)
		check_accepted(&view, bytes);
	free(copy);
	return r == 0;
}

int main(int argc, char **argv)
{
	uint64_t iterations = fuzz_begin(argc, argv, 1000000), accepted = 0;
	uint8_t *data = NULL, *changed = NULL;
	size_t bytes = 0;

	for (uint64_t i = 0; i < iterations; i++) {
		size_t count;

		if (i % 1000 == 0) {
			free(data);
			free(changed);
			data = make_seed(&bytes);
			changed = malloc(bytes);
			must(changed && open_copy(data, bytes), "a seed was refused");
		}
		memcpy(changed, data, bytes);
		for (uint64_t n = 1 + draw(4); n > 0; n--)
			mutate(changed, bytes);
		count = draw(50) ? bytes : draw(bytes);
		if (draw(8))
			redigest(changed, count);
		accepted += open_copy(changed, count);
	}
	free(data);
	free(changed);
	return fuzz_end(accepted, iterations);
}
