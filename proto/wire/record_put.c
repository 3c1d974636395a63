#include "record.h"

#include <string.h>

static const void *pointer_at(const void *member)
{
	const void *pointer;

	memcpy(&pointer, member, sizeof pointer);
	return pointer;
}

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

static bool is_default(const struct record_field *row, const void *pointed)
{
	return row->presence == RECORD_OR && strcmp(pointed, row->text) == 0;
}

static void put_row(struct message_writer *w, const struct record_field *row, const char *base)
{
	const void *pointed;

	if (row->type == RECORD_LOOP || row->type == RECORD_OPEN)
		return;
	if (put_scalar(w, row, base + row->offset))
		return;
	pointed = pointer_at(base + row->offset);
	if (row->type == RECORD_ARRAY && (pointed || row->presence == RECORD_REQUIRED))
		put_array(w, row, base);
	else if (pointed && !is_default(row, pointed))
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
