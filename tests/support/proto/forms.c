#include "forms.h"

#include <stdio.h>

static void print_record(const struct record *record);

static void print_type(const struct record_field *row, enum record_type type)
{
	static const char *const names[] = {
		[RECORD_U64] = "u64",   [RECORD_U32] = "u64", [RECORD_I64] = "i64",    [RECORD_BOOL] = "bool",
		[RECORD_TEXT] = "text", [RECORD_ID] = "id",   [RECORD_ERROR] = "error"};

	if (type == RECORD_ARRAY || type == RECORD_LOOP) {
		printf("[");
		print_type(row, row->element);
		printf("]");
	} else if (type == RECORD_CODEC) {
		printf("%s", row->codec->form);
	} else if (type == RECORD_MAP || type == RECORD_OPEN) {
		print_record(row->record);
	} else {
		printf("%s", names[type]);
	}
}

static void print_default(const struct record_field *row)
{
	if (row->presence != RECORD_OR)
		return;
	if (row->type == RECORD_TEXT)
		printf(" (\"%s\")", row->text);
	else if (row->type == RECORD_BOOL)
		printf(" (%s)", row->number ? "true" : "false");
	else
		printf(" (%lld)", (long long)row->number);
}

static const char *print_rows(const struct record *record, const char *comma)
{
	for (size_t i = 0; i < record->field_count; i++) {
		const struct record_field *row = &record->fields[i];

		if (row->type == RECORD_SPLICE) {
			comma = print_rows(row->record, comma);
			continue;
		}
		printf("%s%s: ", comma, row->key);
		print_type(row, row->type);
		printf("%s", row->presence == RECORD_REQUIRED ? "" : "?");
		print_default(row);
		comma = ", ";
	}
	return comma;
}

static void print_map(const struct record *record)
{
	const char *comma;

	printf("{");
	comma = print_rows(record, "");
	if (record->beside)
		printf("%s%s", comma, record->beside);
	printf("}");
}

static void print_record(const struct record *record)
{
	if (record->name)
		printf("%s", record->name);
	else
		print_map(record);
}

void record_print(const struct record *record, bool whole)
{
	if (whole)
		print_map(record);
	else
		print_record(record);
}

void form_print(const struct message_form *form)
{
	printf("%s %s ", form->result ? "method" : "notification", form->name);
	print_record(form->params);
	if (form->result) {
		printf(" → ");
		print_record(form->result);
	}
	printf("\n");
}
