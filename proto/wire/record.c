#include "record.h"

#include <errno.h>
#include <string.h>

const struct record_field *record_row(const struct record *record, const char *key)
{
	const struct record_field *found = NULL;

	for (size_t i = 0; !found && i < record->field_count; i++) {
		const struct record_field *row = &record->fields[i];

		if (row->type == RECORD_SPLICE)
			found = record_row(row->record, key);
		else if (strcmp(row->key, key) == 0)
			found = row;
	}
	return found;
}

static const void *pointer_at(const void *member)
{
	const void *pointer;

	memcpy(&pointer, member, sizeof pointer);
	return pointer;
}

/* Whether the member is NULL if the key is missing. */
static bool is_pointer(const struct record_field *row)
{
	return row->presence == RECORD_MAYBE && row->type != RECORD_LOOP && row->type != RECORD_OPEN &&
	       row->type != RECORD_CODEC;
}

const char *record_first_given(const struct record *record, const void *value)
{
	const char *found = NULL;

	for (size_t i = 0; !found && i < record->field_count; i++) {
		const struct record_field *row = &record->fields[i];
		const char *member = (const char *)value + row->offset;

		if (row->type == RECORD_SPLICE)
			found = record_first_given(row->record, member);
		else if (is_pointer(row) && pointer_at(member))
			found = row->key;
	}
	return found;
}

/* ---- reading ---- */

/* The map that is read. */
struct reading {
	struct fields fields;
	msgpack_zone *zone; /* the message's */
};

static void read_rows(struct reading *reading, const struct record *record, const msgpack_object *map,
		      void *ret);
static void read_members(struct reading *reading, const struct record *record, void *ret);

static void *reading_take(struct reading *reading, size_t bytes)
{
	void *memory = msgpack_zone_malloc(reading->zone, bytes);

	if (!memory && !reading->fields.error.code)
		error_set(&reading->fields.error, -ENOMEM, NULL, "out of memory for a message");
	return memory;
}

/* All pointers of a struct are set here, whatever they point to. */
static void set_pointer(void *ret, const void *pointer)
{
	memcpy(ret, &pointer, sizeof pointer);
}

static const uint64_t *read_u64(struct reading *reading, const struct record_field *row,
				const msgpack_object *value, uint64_t most)
{
	struct fields *f = &reading->fields;

	if (value->type != MSGPACK_OBJECT_POSITIVE_INTEGER) {
		fields_wrong(f, row->key, "is no unsigned integer");
		return NULL;
	}
	if (value->via.u64 > most && !f->error.code)
		error_set(&f->error, -EINVAL, NULL, "\"%s\" is %llu, at most it is %llu", row->key,
			  (unsigned long long)value->via.u64, (unsigned long long)most);
	return &value->via.u64;
}

static int64_t read_i64(struct reading *reading, const struct record_field *row)
{
	struct fields *f = &reading->fields;
	int64_t number = fields_i64_or(f, row->key, row->number);

	if (number < row->least && !f->error.code)
		error_set(&f->error, -EINVAL, NULL, "\"%s\" is %lld, at least it is %lld", row->key,
			  (long long)number, (long long)row->least);
	return number;
}

static const char *read_text(struct reading *reading, const struct record_field *row,
			     const msgpack_object *value)
{
	char *text;

	if (!fields_is_text(&reading->fields, value, row->key, row->bytes))
		return NULL;
	text = reading_take(reading, (size_t)value->via.str.size + 1);
	if (text)
		fields_copy_text(&reading->fields, value, row->key, text);
	return text;
}

static const bool *read_bool(struct reading *reading, const struct record_field *row)
{
	bool *truth = reading_take(reading, sizeof *truth);

	if (truth)
		*truth = fields_bool_or(&reading->fields, row->key, false);
	return truth;
}

static const void *read_id(struct reading *reading, const struct record_field *row)
{
	uint8_t *bytes = reading_take(reading, sizeof(struct version_id));

	if (bytes)
		fields_hex128(&reading->fields, row->key, bytes);
	return bytes;
}

static const void *read_error(struct reading *reading, const struct record_field *row)
{
	struct error *error = reading_take(reading, sizeof *error);

	if (error)
		fields_error(&reading->fields, row->key, error);
	return error;
}

static const void *read_map(struct reading *reading, const struct record_field *row,
			    const msgpack_object *value)
{
	void *inner;

	if (value->type != MSGPACK_OBJECT_MAP) {
		fields_wrong(&reading->fields, row->key, "is no map");
		return NULL;
	}
	inner = reading_take(reading, row->record->size);
	if (inner)
		read_rows(reading, row->record, value, inner);
	return inner;
}

/* ---- arrays ---- */

size_t record_element_size(const struct record_field *row)
{
	switch (row->element) {
	case RECORD_MAP:
		return row->record->size;
	case RECORD_U32:
		return sizeof(uint32_t);
	case RECORD_U64:
		return sizeof(uint64_t);
	default:
		return sizeof(const char *);
	}
}

static void read_element(struct reading *reading, const struct record_field *row, const msgpack_object *value,
			 void *ret)
{
	const uint64_t *number;

	switch (row->element) {
	case RECORD_MAP:
		read_rows(reading, row->record, value, ret);
		break;
	case RECORD_U32:
		number = read_u64(reading, row, value, UINT32_MAX);
		if (number)
			*(uint32_t *)ret = (uint32_t)*number;
		break;
	case RECORD_U64:
		number = read_u64(reading, row, value, UINT64_MAX);
		if (number)
			*(uint64_t *)ret = *number;
		break;
	default:
		set_pointer(ret, read_text(reading, row, value));
	}
}

/* Reads one element. What is wrong with it is its own: *ret_error. */
static void read_alone(struct reading *reading, const struct record_field *row, const msgpack_object *value,
		       void *ret, const struct error **ret_error)
{
	struct reading alone;
	struct error *error;

	alone.zone = reading->zone;
	fields_of(&alone.fields, NULL);
	read_element(&alone, row, value, ret);
	if (!alone.fields.error.code)
		return;
	error = reading_take(reading, sizeof *error);
	if (error)
		*error = alone.fields.error;
	*ret_error = error;
}

static void read_elements(struct reading *reading, const struct record_field *row, const msgpack_object *value,
			  char *base, char *items)
{
	const size_t size = record_element_size(row);
	const size_t errors_bytes = (value->via.array.size + 1) * sizeof(const struct error *);
	const struct error **errors = row->errors_offset ? reading_take(reading, errors_bytes) : NULL;

	if (errors) {
		memset(errors, 0, errors_bytes);
		set_pointer(base + row->errors_offset, errors);
	}
	for (uint32_t i = 0; !reading->fields.error.code && i < value->via.array.size; i++) {
		if (errors)
			read_alone(reading, row, &value->via.array.ptr[i], items + i * size, &errors[i]);
		else
			read_element(reading, row, &value->via.array.ptr[i], items + i * size);
	}
}

static void read_array(struct reading *reading, const struct record_field *row, const msgpack_object *value,
		       char *base)
{
	struct fields *f = &reading->fields;
	uint32_t count;
	char *items;

	if (value->type != MSGPACK_OBJECT_ARRAY) {
		fields_wrong(f, row->key, "is no array");
		return;
	}
	count = value->via.array.size;
	if (count > row->elements) {
		if (!f->error.code)
			error_set(&f->error, -EINVAL, NULL, "\"%s\" has %u elements, the limit is %u", row->key,
				  count, row->elements);
		return;
	}
	/* An empty array is none that is missing. */
	items = reading_take(reading, (count + 1) * record_element_size(row));
	if (items)
		read_elements(reading, row, value, base, items);
	set_pointer(base + row->offset, items);
	memcpy(base + row->count_offset, &count, sizeof count);
}

/* ---- rows ---- */

/* The key is missing. */
static void read_nothing(const struct record_field *row, void *member)
{
	const uint64_t number = (uint64_t)row->number;
	const bool truth = row->number;

	if (row->type == RECORD_U64 && row->presence != RECORD_MAYBE)
		memcpy(member, &number, sizeof number);
	else if (row->type == RECORD_I64)
		memcpy(member, &row->number, sizeof row->number);
	else if (row->type == RECORD_BOOL && row->presence != RECORD_MAYBE)
		memcpy(member, &truth, sizeof truth);
	else
		set_pointer(member, row->text);
}

static void read_value(struct reading *reading, const struct record_field *row, const msgpack_object *value,
		       char *base)
{
	void *member = base + row->offset;
	const uint64_t *number;

	switch (row->type) {
	case RECORD_U64:
		number = read_u64(reading, row, value, row->most);
		if (row->presence == RECORD_MAYBE)
			set_pointer(member, number);
		else if (number)
			*(uint64_t *)member = *number;
		break;
	case RECORD_I64:
		*(int64_t *)member = read_i64(reading, row);
		break;
	case RECORD_BOOL:
		if (row->presence == RECORD_MAYBE)
			set_pointer(member, read_bool(reading, row));
		else
			*(bool *)member = fields_bool_or(&reading->fields, row->key, false);
		break;
	case RECORD_TEXT:
		set_pointer(member, read_text(reading, row, value));
		break;
	case RECORD_ID:
		set_pointer(member, read_id(reading, row));
		break;
	case RECORD_ERROR:
		set_pointer(member, read_error(reading, row));
		break;
	case RECORD_MAP:
		set_pointer(member, read_map(reading, row, value));
		break;
	case RECORD_ARRAY:
		read_array(reading, row, value, base);
		break;
	default:
		break;
	}
}

static void read_row(struct reading *reading, const struct record_field *row, char *base)
{
	const msgpack_object *value;

	if (row->type == RECORD_SPLICE)
		read_members(reading, row->record, base + row->offset);
	if (row->type == RECORD_LOOP || row->type == RECORD_OPEN || row->type == RECORD_SPLICE)
		return;
	value = fields_find(&reading->fields, row->key);
	if (!value && row->presence == RECORD_REQUIRED)
		fields_wrong(&reading->fields, row->key, "is missing");
	else if (row->type == RECORD_CODEC)
		row->codec->read(&reading->fields, row->key, value, reading->zone, base + row->offset);
	else if (value)
		read_value(reading, row, value, base);
	else
		read_nothing(row, base + row->offset);
}

/* The rows of a record, from the map that is read. */
static void read_members(struct reading *reading, const struct record *record, void *ret)
{
	struct error *error = &reading->fields.error;

	for (size_t i = 0; !error->code && i < record->field_count; i++)
		read_row(reading, &record->fields[i], ret);
	if (!error->code && record->check)
		record->check(ret, error);
}

/* Errors stick to the map around it. */
static void read_rows(struct reading *reading, const struct record *record, const msgpack_object *map,
		      void *ret)
{
	struct reading inner;

	inner.zone = reading->zone;
	memset(ret, 0, record->size);
	fields_of(&inner.fields, map);
	read_members(&inner, record, ret);
	if (inner.fields.error.code && !reading->fields.error.code)
		reading->fields.error = inner.fields.error;
}

int record_read_map(const struct record *record, const msgpack_object *map, msgpack_zone *zone, void *ret,
		    struct error *error)
{
	struct reading reading;

	reading.zone = zone;
	reading.fields.error.code = 0;
	read_rows(&reading, record, map, ret);
	if (reading.fields.error.code)
		*error = reading.fields.error;
	return reading.fields.error.code;
}

int record_read(const struct record *record, const struct message *message, void *ret, struct error *error)
{
	return record_read_map(record, message->body, message->zone, ret, error);
}

/* ---- writing ---- */

static void put_element(struct message_writer *w, const struct record_field *row, const void *element)
{
	switch (row->element) {
	case RECORD_MAP:
		record_put_map(w, NULL, row->record, element);
		break;
	case RECORD_U32:
		message_put_u64(w, NULL, *(const uint32_t *)element);
		break;
	case RECORD_U64:
		message_put_u64(w, NULL, *(const uint64_t *)element);
		break;
	default:
		message_put_text(w, NULL, pointer_at(element));
	}
}

static void put_array(struct message_writer *w, const struct record_field *row, const char *base)
{
	const char *items = pointer_at(base + row->offset);
	uint32_t count;

	memcpy(&count, base + row->count_offset, sizeof count);
	message_begin_array(w, row->key);
	for (uint32_t i = 0; i < count; i++)
		put_element(w, row, items + i * record_element_size(row));
	message_end(w);
}

/* Of a row whose member is no pointer. */
static bool put_scalar(struct message_writer *w, const struct record_field *row, const void *member)
{
	const bool defaults = row->presence == RECORD_OR;

	if (row->type == RECORD_U64 && row->presence != RECORD_MAYBE) {
		if (!defaults || *(const uint64_t *)member != (uint64_t)row->number)
			message_put_u64(w, row->key, *(const uint64_t *)member);
	} else if (row->type == RECORD_I64) {
		if (!defaults || *(const int64_t *)member != row->number)
			message_put_i64(w, row->key, *(const int64_t *)member);
	} else if (row->type == RECORD_BOOL && row->presence != RECORD_MAYBE) {
		if (!defaults || *(const bool *)member != (bool)row->number)
			message_put_bool(w, row->key, *(const bool *)member);
	} else if (row->type == RECORD_CODEC) {
		row->codec->put(w, row->key, member);
	} else {
		return false;
	}
	return true;
}

static void put_pointed(struct message_writer *w, const struct record_field *row, const void *pointed)
{
	switch (row->type) {
	case RECORD_U64:
		message_put_u64(w, row->key, *(const uint64_t *)pointed);
		break;
	case RECORD_BOOL:
		message_put_bool(w, row->key, *(const bool *)pointed);
		break;
	case RECORD_ID:
		message_put_hex128(w, row->key, pointed);
		break;
	case RECORD_ERROR:
		message_put_error(w, row->key, pointed);
		break;
	case RECORD_MAP:
		record_put_map(w, row->key, row->record, pointed);
		break;
	default:
		message_put_text(w, row->key, pointed);
	}
}

static void put_row(struct message_writer *w, const struct record_field *row, const char *base)
{
	const void *pointed;

	if (row->type == RECORD_SPLICE)
		record_put(w, row->record, base + row->offset);
	if (row->type == RECORD_LOOP || row->type == RECORD_OPEN || row->type == RECORD_SPLICE)
		return;
	if (put_scalar(w, row, base + row->offset))
		return;
	pointed = pointer_at(base + row->offset);
	if (row->type == RECORD_ARRAY && (pointed || row->presence == RECORD_REQUIRED))
		put_array(w, row, base);
	else if (pointed && (row->presence != RECORD_OR || strcmp(pointed, row->text) != 0))
		put_pointed(w, row, pointed);
}

void record_put(struct message_writer *w, const struct record *record, const void *value)
{
	for (size_t i = 0; i < record->field_count; i++)
		put_row(w, &record->fields[i], value);
}

void record_put_map(struct message_writer *w, const char *key, const struct record *record, const void *value)
{
	message_begin_map(w, key);
	record_put(w, record, value);
	message_end(w);
}
