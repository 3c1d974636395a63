/* A copy of a struct of a record, with all that its pointers lead to. */
#include "record.h"

#include <stdlib.h>
#include <string.h>

/* No member of a struct needs more. */
#define COPY_ALIGN _Alignof(uint64_t)

/* The block, whose places are counted from its beginning. The rows are walked twice: first without a block, for its
 * size. */
struct copying {
	char *block; /* NULL: the size is being found out */
	size_t size;
};

static void copy_rows(struct copying *copying, const struct record *record, const char *from, size_t to);

/* Returns the place of the copy. */
static size_t copying_add(struct copying *copying, const void *from, size_t bytes)
{
	const size_t place = copying->size;

	if (copying->block && bytes > 0)
		memcpy(copying->block + place, from, bytes);
	copying->size += (bytes + COPY_ALIGN - 1) / COPY_ALIGN * COPY_ALIGN;
	return place;
}

/* Lets the pointer at `pointer` lead to `place`. */
static void copying_lead(const struct copying *copying, size_t pointer, size_t place)
{
	const void *target = copying->block ? copying->block + place : NULL;

	if (target)
		memcpy(copying->block + pointer, &target, sizeof target);
}

static void copy_text(struct copying *copying, const char *text, size_t to)
{
	if (text)
		copying_lead(copying, to, copying_add(copying, text, strlen(text) + 1));
}

static const void *pointer_at(const char *member)
{
	const void *pointer;

	memcpy(&pointer, member, sizeof pointer);
	return pointer;
}

static void copy_array(struct copying *copying, const struct record_field *row, const char *from, size_t to)
{
	const char *items = pointer_at(from + row->offset);
	const size_t bytes = record_element_size(row);
	const struct error *const *errors = row->errors_offset ? pointer_at(from + row->errors_offset) : NULL;
	uint32_t count;
	size_t place;

	if (!items)
		return;
	memcpy(&count, from + row->count_offset, sizeof count);
	place = copying_add(copying, items, count * bytes);
	copying_lead(copying, to + row->offset, place);
	for (uint32_t i = 0; i < count; i++) {
		if (row->element == RECORD_MAP)
			copy_rows(copying, row->record, items + i * bytes, place + i * bytes);
		else if (row->element == RECORD_TEXT)
			copy_text(copying, pointer_at(items + i * bytes), place + i * bytes);
	}
	if (!errors)
		return;
	place = copying_add(copying, errors, count * sizeof *errors);
	copying_lead(copying, to + row->errors_offset, place);
	for (uint32_t i = 0; i < count; i++)
		if (errors[i])
			copying_lead(copying, place + i * sizeof *errors,
				     copying_add(copying, errors[i], sizeof *errors[i]));
}

/* Returns the size of what the row's member points to; 0: the member is no pointer. */
static size_t pointed_size(const struct record_field *row)
{
	switch (row->type) {
	case RECORD_U64:
		return row->presence == RECORD_MAYBE ? sizeof(uint64_t) : 0;
	case RECORD_BOOL:
		return row->presence == RECORD_MAYBE ? sizeof(bool) : 0;
	case RECORD_ID:
		return sizeof(struct version_id);
	case RECORD_ERROR:
		return sizeof(struct error);
	case RECORD_MAP:
		return row->record->size;
	default:
		return 0;
	}
}

/* The struct that has the row's member is copied already, with the pointers of `from`. */
static void copy_row(struct copying *copying, const struct record_field *row, const char *from, size_t to)
{
	const char *member = from + row->offset;
	const size_t bytes = pointed_size(row), at = to + row->offset;
	const void *pointed = bytes > 0 ? pointer_at(member) : NULL;
	size_t place;

	if (pointed) {
		place = copying_add(copying, pointed, bytes);
		copying_lead(copying, at, place);
		if (row->type == RECORD_MAP)
			copy_rows(copying, row->record, pointed, place);
	} else if (row->type == RECORD_TEXT) {
		copy_text(copying, pointer_at(member), at);
	} else if (row->type == RECORD_ARRAY) {
		copy_array(copying, row, from, to);
	} else if (row->type == RECORD_SPLICE) {
		copy_rows(copying, row->record, member, at);
	} else if (row->type == RECORD_CODEC && row->codec->text) {
		const char **text = row->codec->text((void *)member);

		copy_text(copying, *text, at + (size_t)((const char *)text - member));
	}
}

static void copy_rows(struct copying *copying, const struct record *record, const char *from, size_t to)
{
	for (size_t i = 0; i < record->field_count; i++)
		copy_row(copying, &record->fields[i], from, to);
}

void *record_copy(const struct record *record, const void *value)
{
	struct copying copying = {0};

	copying_add(&copying, value, record->size);
	copy_rows(&copying, record, value, 0);
	copying = (struct copying){.block = malloc(copying.size)};
	if (!copying.block)
		return NULL;
	copying_add(&copying, value, record->size);
	copy_rows(&copying, record, value, 0);
	return copying.block;
}
