#include "safetensors.h"

#include "../proto/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_SHOWN_MAX 200
#define METADATA_KEY "__metadata__"
#define RULE_FILL                                                                                              \
	"tensors start at byte 0 of the data, follow each other without gap or overlap, and end with the file"

int text_shown(const char *text)
{
	size_t length = strnlen(text, TEXT_SHOWN_MAX + 1);

	if (length <= TEXT_SHOWN_MAX)
		return (int)length;
	length = TEXT_SHOWN_MAX;
	while (length && ((unsigned char)text[length] & 0xC0) == 0x80)
		length--;
	return (int)length;
}

int safetensors_header_bytes(const uint8_t prefix[SAFETENSORS_PREFIX], uint64_t file_bytes, const char *file,
			     uint64_t *ret_bytes, struct error *error)
{
	uint64_t bytes = 0;

	for (int i = 0; i < SAFETENSORS_PREFIX; i++)
		bytes |= (uint64_t)prefix[i] << (8 * i);
	if (file_bytes < SAFETENSORS_PREFIX)
		return error_set(error, -EBADMSG,
				 "the first 8 bytes of a safetensors file are the header's length",
				 "%s: has %" PRIu64 " bytes, too few for a header", file, file_bytes);
	if (bytes == 0)
		return error_set(error, -EBADMSG,
				 "the first 8 bytes of a safetensors file are the header's length",
				 "%s: the header length is 0", file);
	if (bytes > SAFETENSORS_HEADER_MAX)
		return error_set(error, -EBADMSG, "is this a safetensors file?",
				 "%s: the header length %" PRIu64 " is above the limit of %d", file, bytes,
				 SAFETENSORS_HEADER_MAX);
	if (bytes > file_bytes - SAFETENSORS_PREFIX)
		return error_set(error, -EBADMSG, "the file is truncated, or no safetensors file",
				 "%s: the header length %" PRIu64 " leaves the file, which has %" PRIu64
				 " bytes",
				 file, bytes, file_bytes);
	*ret_bytes = bytes;
	return 0;
}

/* What one call of safetensors_parse works with. */
struct parser {
	const char *file;
	uint64_t data_offset, data_bytes;
	struct safetensors *content;
	size_t dims_used;
	struct error *error;
};

static int tensor_error(struct parser *p, const char *name, const char *rule, const char *what)
{
	return error_set(p->error, -EBADMSG, rule, "%s: tensor \"%.*s\": %s", p->file, text_shown(name), name,
			 what);
}

/* jansson quotes the input, which may be cut inside a character. */
static int json_failed(struct parser *p, json_error_t *json_error)
{
	for (char *c = json_error->text; *c; c++)
		if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7E)
			*c = '?';
	return error_set(
		p->error, -EBADMSG, "the header is UTF-8 JSON: one object, no duplicate keys, nothing after it",
		"%s: the header is not valid at byte %d: %s", p->file, json_error->position, json_error->text);
}

/* A non-negative integer of an array, or an error. */
static int read_count(struct parser *p, const char *name, const char *key, const json_t *value, uint64_t *ret)
{
	char what[64];

	if (json_is_integer(value) && json_integer_value(value) >= 0) {
		*ret = (uint64_t)json_integer_value(value);
		return 0;
	}
	snprintf(what, sizeof(what), "%s holds something that is no non-negative integer", key);
	return tensor_error(p, name, NULL, what);
}

static int read_dtype(struct parser *p, const char *name, const json_t *entry, unsigned *ret_dtype)
{
	const char *text = json_string_value(json_object_get(entry, "dtype"));
	char what[128];
	unsigned dtype;

	if (!text)
		return tensor_error(p, name, NULL, "dtype is missing or no text");
	dtype = dtype_from_name(text);
	if (!dtype) {
		snprintf(what, sizeof(what), "dtype \"%.40s\" is unknown", text_shown(text) <= 40 ? text : "…");
		return tensor_error(p, name, "the 22 dtypes of safetensors, in capitals", what);
	}
	*ret_dtype = dtype;
	return 0;
}

static int read_shape(struct parser *p, const char *name, const json_t *entry,
		      struct safetensors_tensor *tensor)
{
	const json_t *shape = json_object_get(entry, "shape");
	uint64_t *dims = p->content->dims + p->dims_used;
	char what[64];

	if (!json_is_array(shape))
		return tensor_error(p, name, NULL, "shape is missing or no array");
	if (json_array_size(shape) > TENSOR_DIMS_MAX) {
		snprintf(what, sizeof(what), "shape has %zu dimensions, above the limit of %d",
			 json_array_size(shape), TENSOR_DIMS_MAX);
		return tensor_error(p, name, NULL, what);
	}
	tensor->ndim = (unsigned)json_array_size(shape);
	tensor->shape = dims;
	for (unsigned i = 0; i < tensor->ndim; i++) {
		int r = read_count(p, name, "shape", json_array_get(shape, i), &dims[i]);

		if (r < 0)
			return r;
	}
	p->dims_used += tensor->ndim;
	return 0;
}

static int read_offsets(struct parser *p, const char *name, const json_t *entry,
			struct safetensors_tensor *tensor)
{
	const json_t *offsets = json_object_get(entry, "data_offsets");
	uint64_t begin, end;
	int r;

	if (!json_is_array(offsets) || json_array_size(offsets) != 2)
		return tensor_error(p, name, NULL, "data_offsets is missing or no array of two");
	r = read_count(p, name, "data_offsets", json_array_get(offsets, 0), &begin);
	if (r == 0)
		r = read_count(p, name, "data_offsets", json_array_get(offsets, 1), &end);
	if (r < 0)
		return r;
	if (end < begin)
		return tensor_error(p, name, NULL, "data_offsets end before they begin");
	if (end > p->data_bytes)
		return tensor_error(p, name, RULE_FILL, "data_offsets leave the file");
	tensor->offset = p->data_offset + begin;
	tensor->bytes = end - begin;
	return 0;
}

static int check_size(struct parser *p, const struct safetensors_tensor *tensor)
{
	uint64_t bytes;
	char what[128];
	int r = dtype_bytes(tensor->dtype, tensor->ndim, tensor->shape, &bytes);

	if (r == -EOVERFLOW)
		return tensor_error(p, tensor->name, NULL, "the product of its shape overflows 64 bits");
	if (r < 0)
		return tensor_error(p, tensor->name, NULL, "shape and dtype make no whole number of bytes");
	if (bytes != tensor->bytes) {
		snprintf(what, sizeof(what),
			 "shape and dtype make %" PRIu64 " bytes, data_offsets span %" PRIu64, bytes,
			 tensor->bytes);
		return tensor_error(p, tensor->name, NULL, what);
	}
	return 0;
}

static int read_tensor(struct parser *p, const char *name, const json_t *entry)
{
	struct safetensors_tensor *tensor = &p->content->tensors[p->content->count];
	int r;

	if (!*name || strlen(name) > TENSOR_NAME_BYTES_MAX)
		return tensor_error(p, name, "1 to 65,535 bytes",
				    *name ? "its name is too long" : "it has no name");
	if (!json_is_object(entry))
		return tensor_error(p, name, NULL, "its entry is no object");
	tensor->name = name;
	r = read_dtype(p, name, entry, &tensor->dtype);
	if (r == 0)
		r = read_shape(p, name, entry, tensor);
	if (r == 0)
		r = read_offsets(p, name, entry, tensor);
	if (r == 0)
		r = check_size(p, tensor);
	if (r == 0)
		p->content->count++;
	return r;
}

/* null reads as none, as in the reference. */
static int read_metadata(struct parser *p, json_t *map)
{
	const char *key;
	json_t *value;

	if (json_is_null(map))
		return 0;
	if (!json_is_object(map))
		return error_set(p->error, -EBADMSG, NULL, "%s: " METADATA_KEY " is no object", p->file);
	p->content->metadata = calloc(json_object_size(map) + 1, sizeof(*p->content->metadata));
	if (!p->content->metadata)
		return error_set(p->error, -ENOMEM, NULL, "%s: out of memory", p->file);
	json_object_foreach(map, key, value) {
		if (!json_is_string(value))
			return error_set(p->error, -EBADMSG, METADATA_KEY " maps texts to texts",
					 "%s: " METADATA_KEY ": \"%.*s\" is no text", p->file, text_shown(key),
					 key);
		p->content->metadata[p->content->metadata_count++] =
			(struct safetensors_pair){.key = key, .value = json_string_value(value)};
	}
	return 0;
}

/* Dimensions of all tensors, so that shapes may point into one array. */
static size_t count_dims(json_t *root)
{
	size_t count = 0;
	const char *key;
	json_t *entry;

	json_object_foreach(root, key, entry)
		count += json_array_size(json_object_get(entry, "shape"));
	return count;
}

static int compare_offsets(const void *a, const void *b)
{
	const struct safetensors_tensor *x = a, *y = b;

	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int check_filled(struct parser *p)
{
	struct safetensors *content = p->content;
	uint64_t at = p->data_offset;
	char what[128];

	qsort(content->tensors, content->count, sizeof(*content->tensors), compare_offsets);
	for (size_t i = 0; i < content->count; i++) {
		const struct safetensors_tensor *tensor = &content->tensors[i];

		if (tensor->offset != at) {
			snprintf(what, sizeof(what),
				 "%s: begins at byte %" PRIu64 " of the data, expected %" PRIu64,
				 tensor->offset < at ? "overlaps the tensor before it"
						     : "leaves a gap before it",
				 tensor->offset - p->data_offset, at - p->data_offset);
			return tensor_error(p, tensor->name, RULE_FILL, what);
		}
		at += tensor->bytes;
	}
	if (at - p->data_offset == p->data_bytes)
		return 0;
	return error_set(p->error, -EBADMSG, RULE_FILL,
			 "%s: the tensors end at byte %" PRIu64 " of the data, the file at %" PRIu64, p->file,
			 at - p->data_offset, p->data_bytes);
}

static int read_document(struct parser *p, json_t *root)
{
	const char *key;
	json_t *entry;
	int r = 0;

	if (!json_is_object(root))
		return error_set(p->error, -EBADMSG, NULL, "%s: the header is no JSON object", p->file);
	p->content->tensors = calloc(json_object_size(root) + 1, sizeof(*p->content->tensors));
	p->content->dims = calloc(count_dims(root) + 1, sizeof(*p->content->dims));
	if (!p->content->tensors || !p->content->dims)
		return error_set(p->error, -ENOMEM, NULL, "%s: out of memory", p->file);
	json_object_foreach(root, key, entry) {
		r = strcmp(key, METADATA_KEY) == 0 ? read_metadata(p, entry) : read_tensor(p, key, entry);
		if (r < 0)
			return r;
	}
	return check_filled(p);
}

int safetensors_parse(const char *file, const void *header, size_t header_bytes, uint64_t file_bytes,
		      struct safetensors *ret, struct error *error)
{
	struct safetensors content = {0};
	struct parser p = {.file = file, .content = &content, .error = error};
	json_error_t json_error;
	int r;

	if (file_bytes < SAFETENSORS_PREFIX || header_bytes > file_bytes - SAFETENSORS_PREFIX)
		return error_set(error, -EBADMSG, NULL, "%s: the header leaves the file", file);
	p.data_offset = SAFETENSORS_PREFIX + header_bytes;
	p.data_bytes = file_bytes - p.data_offset;
	content.document = json_loadb(header, header_bytes, JSON_REJECT_DUPLICATES, &json_error);
	if (!content.document)
		return json_failed(&p, &json_error);
	r = read_document(&p, content.document);
	if (r < 0) {
		safetensors_clear(&content);
		return r;
	}
	*ret = content;
	return 0;
}

void safetensors_clear(struct safetensors *content)
{
	free(content->tensors);
	free(content->metadata);
	free(content->dims);
	json_decref(content->document);
	memset(content, 0, sizeof(*content));
}
