#include "format.h"

#include "../../proto/index/dtype.h"
#include "json_reader.h"
#include "../../base/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_SHOWN_MAX 40
#define METADATA_KEY "__metadata__"
#define RULE_FILL                                                                                              \
	"tensors start at byte 0 of the data, follow each other without gap or overlap, and end with the file"

/* The shortest possible entries. A header can't have more entries of a kind than its bytes divided
 * by the length of one. */
#define TENSOR_BYTES_MIN (sizeof("\"a\":{\"dtype\":\"F4\",\"shape\":[],\"data_offsets\":[0,0]}") - 1)
#define PAIR_BYTES_MIN (sizeof("\"\":\"\"") - 1)
#define DIM_BYTES_MIN (sizeof("1,") - 1)

/* The state of one call of safetensors_parse. */
struct parser {
	const char *file;
	uint64_t data_offset, data_bytes;
	struct format_content *content;
	size_t dims_used;
	struct json_reader json;
	struct error *error;
};

static int header_no_memory(struct parser *p)
{
	return error_set(p->error, -ENOMEM, NULL, "%s: no memory for what a header of %zu bytes says", p->file,
			 p->json.bytes);
}

static int tensor_error(struct parser *p, int code, const char *name, const char *rule, const char *what)
{
	return error_set(p->error, code, rule, "%s: tensor \"%.*s\": %s", p->file, text_shown(name), name,
			 what);
}

/* Returns 0 unless the reader met a fault. */
static int json_state(struct parser *p)
{
	const char *fault = json_reader_fault(&p->json);

	if (!fault)
		return 0;
	return error_set(p->error, -EBADMSG,
			 "the header is UTF-8 JSON: one object, no duplicate keys, nothing after it",
			 "%s: the header is not valid JSON at byte %zu: %s", p->file, p->json.at, fault);
}

static int duplicate_key(struct parser *p, const char *key)
{
	return error_set(p->error, -EBADMSG, "each key is there once",
			 "%s: the header has a duplicate key: \"%.*s\"", p->file, TEXT_SHOWN_MAX, key);
}

/* Makes the error for a value that is missing or of the wrong kind. */
static int wrong_value(struct parser *p, const char *name, const char *what)
{
	if (json_reader_peek(&p->json) != JSON_KIND_NONE)
		return tensor_error(p, -EBADMSG, name, NULL, what);
	json_reader_skip(&p->json);
	return json_state(p);
}

static int number_shown(const struct json_number *number)
{
	return number->length < NUMBER_SHOWN_MAX ? (int)number->length : NUMBER_SHOWN_MAX;
}

/* Reads an integer that is not negative. */
static int read_count(struct parser *p, const char *name, const char *key, uint64_t *ret)
{
	struct json_number number;
	char what[160];

	if (json_reader_peek(&p->json) != JSON_KIND_NUMBER) {
		snprintf(what, sizeof(what), "%s holds something that is no non-negative integer", key);
		return wrong_value(p, name, what);
	}
	if (!json_reader_number(&p->json, &number))
		return json_state(p);
	if (number.is_count && number.count <= INT64_MAX) {
		*ret = number.count;
		return 0;
	}
	if (number.is_integer && *number.text != '-')
		snprintf(what, sizeof(what), "%s holds %.*s, above the limit of %" PRId64, key,
			 number_shown(&number), number.text, INT64_MAX);
	else
		snprintf(what, sizeof(what), "%s holds %.*s, which is no non-negative integer", key,
			 number_shown(&number), number.text);
	return tensor_error(p, -EBADMSG, name, NULL, what);
}

static int read_dtype(struct parser *p, const char *name, unsigned *ret_dtype)
{
	struct json_text text;
	char what[128];

	if (json_reader_peek(&p->json) != JSON_KIND_TEXT)
		return wrong_value(p, name, "dtype is no text");
	if (!json_reader_text(&p->json, &text))
		return json_state(p);
	*ret_dtype = json_text_has_zero(text) ? 0 : dtype_from_name(text.bytes);
	if (dtype_family(*ret_dtype) != DTYPE_SAFETENSORS) {
		snprintf(what, sizeof(what), "dtype \"%.40s\" is unknown",
			 text_shown(text.bytes) <= 40 ? text.bytes : "…");
		return tensor_error(p, -ENOTSUP, name, "the 22 dtypes of safetensors, in capitals", what);
	}
	json_reader_forget(&p->json, text);
	return 0;
}

static int read_shape(struct parser *p, const char *name, struct format_tensor *tensor)
{
	uint64_t *dims = p->content->dims + p->dims_used, dim;
	size_t count = 0;
	char what[80];
	int r = 0;

	if (json_reader_peek(&p->json) != JSON_KIND_ARRAY)
		return wrong_value(p, name, "shape is no array");
	json_reader_array(&p->json);
	for (; r == 0 && json_reader_item(&p->json); count++) {
		r = read_count(p, name, "shape", &dim);
		if (r == 0 && count < TENSOR_DIMS_MAX)
			dims[count] = dim;
	}
	if (r == 0)
		r = json_state(p);
	if (r == 0 && count > TENSOR_DIMS_MAX) {
		snprintf(what, sizeof(what), "shape has %zu dimensions, above the limit of %d", count,
			 TENSOR_DIMS_MAX);
		r = tensor_error(p, -ENOTSUP, name, NULL, what);
	}
	if (r < 0)
		return r;
	tensor->ndim = (unsigned)count;
	tensor->shape = dims;
	p->dims_used += count;
	return 0;
}

static int read_offsets(struct parser *p, const char *name, struct format_tensor *tensor)
{
	uint64_t ends[2], end;
	size_t count = 0;
	int r = 0;

	if (json_reader_peek(&p->json) != JSON_KIND_ARRAY)
		return wrong_value(p, name, "data_offsets is no array of two");
	json_reader_array(&p->json);
	for (; r == 0 && json_reader_item(&p->json); count++)
		r = read_count(p, name, "data_offsets", count < 2 ? &ends[count] : &end);
	if (r == 0)
		r = json_state(p);
	if (r < 0)
		return r;
	if (count != 2)
		return tensor_error(p, -EBADMSG, name, NULL, "data_offsets is no array of two");
	if (ends[1] < ends[0])
		return tensor_error(p, -EBADMSG, name, NULL, "data_offsets end before they begin");
	tensor->offset = ends[0];
	tensor->bytes = ends[1] - ends[0];
	return 0;
}

static int check_size(struct parser *p, const struct format_tensor *tensor)
{
	uint64_t bytes;
	char what[128];
	int r = dtype_bytes(tensor->dtype, tensor->ndim, tensor->shape, &bytes);

	if (r == -EOVERFLOW)
		return tensor_error(p, -EBADMSG, tensor->name, NULL,
				    "the product of its shape overflows 64 bits");
	if (r < 0)
		return tensor_error(p, -EBADMSG, tensor->name, NULL,
				    "shape and dtype make no whole number of bytes");
	if (bytes != tensor->bytes) {
		snprintf(what, sizeof(what),
			 "shape and dtype make %" PRIu64 " bytes, data_offsets span %" PRIu64, bytes,
			 tensor->bytes);
		return tensor_error(p, -EBADMSG, tensor->name, NULL, what);
	}
	return 0;
}

enum field { FIELD_DTYPE, FIELD_SHAPE, FIELD_OFFSETS, FIELD_COUNT };
static const char *const field_names[] = {"dtype", "shape", "data_offsets"};

static int read_field(struct parser *p, enum field field, const char *name, struct format_tensor *tensor)
{
	switch (field) {
	case FIELD_DTYPE:
		return read_dtype(p, name, &tensor->dtype);
	case FIELD_SHAPE:
		return read_shape(p, name, tensor);
	case FIELD_OFFSETS:
		return read_offsets(p, name, tensor);
	default:
		json_reader_skip(&p->json);
		return json_state(p);
	}
}

static int read_fields(struct parser *p, const char *name, struct format_tensor *tensor)
{
	bool have[FIELD_COUNT + 1] = {false};
	struct json_text key;
	char what[64];
	int r = 0;

	json_reader_object(&p->json);
	while (r == 0 && json_reader_key(&p->json, &key)) {
		unsigned field = 0;

		while (field < FIELD_COUNT &&
		       (strcmp(key.bytes, field_names[field]) != 0 || json_text_has_zero(key)))
			field++;
		json_reader_forget(&p->json, key);
		if (field < FIELD_COUNT && have[field])
			return duplicate_key(p, field_names[field]);
		have[field] = true;
		r = read_field(p, field, name, tensor);
	}
	if (r == 0)
		r = json_state(p);
	for (unsigned i = 0; r == 0 && i < FIELD_COUNT; i++)
		if (!have[i]) {
			snprintf(what, sizeof(what), "%s is missing", field_names[i]);
			r = tensor_error(p, -EBADMSG, name, NULL, what);
		}
	return r;
}

static int read_tensor(struct parser *p, struct json_text name)
{
	struct format_tensor *tensor = &p->content->tensors[p->content->count];
	int r;

	if (name.length == 0 || name.length > TENSOR_NAME_BYTES_MAX || json_text_has_zero(name))
		return tensor_error(p, -ENOTSUP, name.bytes, "a name has 1 to 65,535 bytes, none of them zero",
				    name.length == 0           ? "it has no name"
				    : json_text_has_zero(name) ? "a zero byte is in its name"
							       : "its name is too long");
	if (json_reader_peek(&p->json) != JSON_KIND_OBJECT)
		return wrong_value(p, name.bytes, "its entry is no object");
	tensor->name = name.bytes;
	r = read_fields(p, name.bytes, tensor);
	if (r == 0)
		r = check_size(p, tensor);
	if (r == 0)
		p->content->count++;
	return r;
}

static int read_pair(struct parser *p, struct json_text key)
{
	struct json_text value;

	if (json_reader_peek(&p->json) != JSON_KIND_TEXT)
		return error_set(p->error, -EBADMSG, METADATA_KEY " maps texts to texts",
				 "%s: " METADATA_KEY ": \"%.*s\" is no text", p->file, text_shown(key.bytes),
				 key.bytes);
	if (!json_reader_text(&p->json, &value))
		return json_state(p);
	if (json_text_has_zero(key) || json_text_has_zero(value))
		return error_set(p->error, -ENOTSUP, NULL, "%s: " METADATA_KEY ": a zero byte is in \"%.*s\"",
				 p->file, text_shown(key.bytes), key.bytes);
	p->content->metadata[p->content->metadata_count++] =
		(struct format_text){.key = key.bytes, .value = value.bytes};
	return 0;
}

/* As in the reference, null counts as no metadata. */
static int read_metadata(struct parser *p)
{
	struct json_text key;
	int r = 0;

	if (p->content->metadata)
		return duplicate_key(p, METADATA_KEY);
	p->content->metadata = calloc(p->json.bytes / PAIR_BYTES_MIN + 1, sizeof(*p->content->metadata));
	if (!p->content->metadata)
		return header_no_memory(p);
	if (json_reader_null(&p->json))
		return 0;
	if (json_reader_peek(&p->json) != JSON_KIND_OBJECT)
		return error_set(p->error, -EBADMSG, NULL, "%s: " METADATA_KEY " is no object", p->file);
	json_reader_object(&p->json);
	while (r == 0 && json_reader_key(&p->json, &key))
		r = read_pair(p, key);
	return r < 0 ? r : json_state(p);
}

/* ---- what holds between entries ------------------------------------------ */

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* It sorts the names. */
static int check_unique(struct parser *p, const char **names, size_t count)
{
	qsort(names, count, sizeof(*names), compare_names);
	for (size_t i = 1; i < count; i++)
		if (strcmp(names[i - 1], names[i]) == 0)
			return duplicate_key(p, names[i]);
	return 0;
}

static int check_keys(struct parser *p)
{
	const struct format_content *content = p->content;
	size_t most = content->count > content->metadata_count ? content->count : content->metadata_count;
	const char **names = calloc(most + 1, sizeof(*names));
	int r;

	if (!names)
		return header_no_memory(p);
	for (size_t i = 0; i < content->count; i++)
		names[i] = content->tensors[i].name;
	r = check_unique(p, names, content->count);
	for (size_t i = 0; i < content->metadata_count; i++)
		names[i] = content->metadata[i].key;
	if (r == 0)
		r = check_unique(p, names, content->metadata_count);
	free(names);
	return r;
}

static int compare_offsets(const void *a, const void *b)
{
	const struct format_tensor *x = a, *y = b;

	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int truncated(struct parser *p, uint64_t data_bytes)
{
	return error_set(p->error, -EBADMSG, "is the download complete?",
			 "%s is truncated: it has %" PRIu64 " bytes, its tensors need %" PRIu64, p->file,
			 p->data_offset + p->data_bytes, p->data_offset + data_bytes);
}

/* From now on the offsets count from the beginning of the file. */
static int check_filled(struct parser *p)
{
	struct format_content *content = p->content;
	uint64_t at = 0;
	char what[128];

	qsort(content->tensors, content->count, sizeof(*content->tensors), compare_offsets);
	for (size_t i = 0; i < content->count; i++) {
		struct format_tensor *tensor = &content->tensors[i];

		if (tensor->offset != at) {
			snprintf(what, sizeof(what),
				 "%s: begins at byte %" PRIu64 " of the data, expected %" PRIu64,
				 tensor->offset < at ? "overlaps the tensor before it"
						     : "leaves a gap before it",
				 tensor->offset, at);
			return tensor_error(p, -EBADMSG, tensor->name, RULE_FILL, what);
		}
		at += tensor->bytes;
		tensor->offset += p->data_offset;
	}
	if (at > p->data_bytes)
		return truncated(p, at);
	if (at == p->data_bytes)
		return 0;
	return error_set(p->error, -EBADMSG, RULE_FILL,
			 "%s: the tensors end at byte %" PRIu64 " of the data, the file at %" PRIu64, p->file,
			 at, p->data_bytes);
}

static int read_entries(struct parser *p)
{
	struct json_text key;
	int r = 0;

	if (json_reader_peek(&p->json) == JSON_KIND_ARRAY)
		return error_set(p->error, -EBADMSG, NULL, "%s: the header is no JSON object", p->file);
	json_reader_object(&p->json);
	while (r == 0 && json_reader_key(&p->json, &key))
		r = strcmp(key.bytes, METADATA_KEY) == 0 && !json_text_has_zero(key) ? read_metadata(p)
										     : read_tensor(p, key);
	if (r == 0)
		json_reader_end(&p->json);
	return r < 0 ? r : json_state(p);
}

static int read_header(struct parser *p, const char *header, size_t bytes)
{
	struct format_content *content = p->content;
	int r;

	content->texts = malloc(bytes + 1);
	json_reader_open(header, bytes, content->texts, &p->json);
	content->tensors = calloc(bytes / TENSOR_BYTES_MIN + 1, sizeof(*content->tensors));
	content->dims = calloc(bytes / DIM_BYTES_MIN + 1, sizeof(*content->dims));
	if (!content->texts || !content->tensors || !content->dims)
		return header_no_memory(p);
	r = read_entries(p);
	if (r == 0)
		r = check_keys(p);
	return r < 0 ? r : check_filled(p);
}

int safetensors_parse(const char *file, const void *header, size_t header_bytes, uint64_t file_bytes,
		      struct format_content *ret, struct error *error)
{
	struct format_content content = {0};
	struct parser p = {.file = file, .content = &content, .error = error};
	int r;

	if (file_bytes < SAFETENSORS_PREFIX || header_bytes > file_bytes - SAFETENSORS_PREFIX)
		return error_set(error, -EBADMSG, NULL, "%s: the header leaves the file", file);
	p.data_offset = SAFETENSORS_PREFIX + header_bytes;
	p.data_bytes = file_bytes - p.data_offset;
	r = read_header(&p, header, header_bytes);
	if (r < 0) {
		format_content_clear(&content);
		return r;
	}
	*ret = content;
	return 0;
}
