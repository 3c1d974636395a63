#include "key.h"

#include "utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *key_field_wrong(const char *name, const char *value)
{
	const char *wrong = name ? name_wrong(name) : "has no name";

	if (wrong)
		return wrong;
	if (!value)
		return "has no value";
	if (strlen(value) > KEY_VALUE_BYTES_MAX)
		return "has a value of more than 255 bytes";
	return utf8_valid(value) ? NULL : "has a value that is not UTF-8";
}

void key_write(struct message_writer *w, const char *name, const char *value)
{
	message_begin_map(w, NULL);
	message_put_text(w, "name", name);
	message_put_text(w, "value", value);
	message_end(w);
}

/* Reads fields[at], which must not have the name of a field before it. */
static void read_field(struct fields *f, const msgpack_object *object, struct key_field *fields, uint32_t at)
{
	struct key_field *field = &fields[at];
	const char *wrong = NULL;
	struct fields inner;

	fields_of(&inner, object);
	fields_text(&inner, "name", field->name, sizeof(field->name));
	fields_text(&inner, "value", field->value, sizeof(field->value));
	if (inner.error.code) {
		f->error = inner.error;
		return;
	}
	wrong = key_field_wrong(field->name, field->value);
	for (uint32_t i = 0; !wrong && i < at; i++)
		wrong = strcmp(fields[i].name, field->name) == 0 ? "is there twice" : NULL;
	if (wrong)
		error_set(&f->error, -EINVAL, "a field is named as models are", "the key's field \"%s\" %s",
			  field->name, wrong);
}

struct key_field *key_read(struct fields *f, const char *key, uint32_t *ret_count)
{
	const msgpack_object *array;
	struct key_field *fields;
	uint32_t count = 0;

	*ret_count = 0;
	if (!fields_have(f, key))
		return NULL;
	array = fields_array(f, key, &count);
	if (!f->error.code && count > KEY_FIELDS_MAX)
		error_set(&f->error, -EINVAL, NULL, "a key of %u fields; at most %d", count, KEY_FIELDS_MAX);
	if (f->error.code)
		return NULL;
	fields = calloc((size_t)count + 1, sizeof(*fields));
	if (!fields)
		error_set(&f->error, -ENOMEM, NULL, "out of memory for a key");
	for (uint32_t i = 0; !f->error.code && i < count; i++)
		read_field(f, &array[i], fields, i);
	if (f->error.code) {
		free(fields);
		return NULL;
	}
	*ret_count = count;
	return fields;
}
