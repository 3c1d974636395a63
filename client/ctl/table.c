#include "table.h"

#include "../../proto/utf8.h"
#include "exit.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct table {
	const struct column *columns;
	size_t width; /* columns */
	size_t cells, capacity;
	bool failed; /* memory was short */
	char **cell; /* the heads are the first row */
};

/* Columns that a text takes: one for each UTF-8 sequence. */
static size_t text_width(const char *text)
{
	size_t width = 0;

	for (; *text != '\0'; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

/* To be freed; NULL: memory is short. */
static char *text_shown(const char *text)
{
	const size_t size = UTF8_SHOWN_MAX(strlen(text));
	char *shown = malloc(size);

	if (shown)
		utf8_show(text, shown, size);
	return shown;
}

static void cell_append(struct table *table, const char *text)
{
	char *copy;

	if (table->cells == table->capacity) {
		size_t capacity = table->capacity ? 2 * table->capacity : 64;
		char **cell = realloc(table->cell, capacity * sizeof(*cell));

		if (!cell) {
			table->failed = true;
			return;
		}
		table->cell = cell;
		table->capacity = capacity;
	}
	copy = text_shown(text);
	if (!copy) {
		table->failed = true;
		return;
	}
	table->cell[table->cells++] = copy;
}

static bool is_right(const struct column *column)
{
	return column->head[0] == '>';
}

struct table *table_new(const struct column *columns)
{
	struct table *table = calloc(1, sizeof(*table));

	if (!table)
		return NULL;
	table->columns = columns;
	for (; columns->head; columns++) {
		cell_append(table, columns->head + is_right(columns));
		table->width++;
	}
	return table;
}

static void table_free(struct table *table)
{
	if (!table)
		return;
	for (size_t i = 0; i < table->cells; i++)
		free(table->cell[i]);
	free(table->cell);
	free(table);
}

void table_row(struct table *table, const json_t *row)
{
	for (size_t i = 0; table && !table->failed && i < table->width; i++) {
		const struct column *column = &table->columns[i];
		char buffer[CELL_TEXT];
		const char *text = column->cell(row, column->key, buffer);

		cell_append(table, *text ? text : "-");
	}
}

/* The widest text of each column, to be freed. NULL: memory is short. */
static size_t *table_widths(const struct table *table)
{
	size_t *widths = calloc(table->width, sizeof(*widths));

	for (size_t i = 0; widths && i < table->cells; i++) {
		size_t width = text_width(table->cell[i]), *widest = &widths[i % table->width];

		*widest = width > *widest ? width : *widest;
	}
	return widths;
}

static void row_print(const struct table *table, size_t row, const size_t *widths)
{
	for (size_t i = 0; i < table->width; i++) {
		const char *text = table->cell[row * table->width + i];
		int padding = (int)(widths[i] - text_width(text));
		bool last = i + 1 == table->width;

		if (is_right(&table->columns[i]))
			printf("%*s%s%s", padding, "", text, last ? "" : "  ");
		else
			printf("%s%*s", text, last ? 0 : padding + 2, "");
	}
	putchar('\n');
}

int table_print(struct table *table)
{
	size_t *widths = table && !table->failed ? table_widths(table) : NULL;
	int code = EXIT_DONE;

	if (!widths)
		code = exit_with(EXIT_FAILED, NULL, "out of memory for a table");
	for (size_t row = 0; widths && row < table->cells / table->width; row++)
		row_print(table, row, widths);
	free(widths);
	table_free(table);
	return code;
}

int table_of(const struct column *columns, const json_t *rows)
{
	struct table *table = table_new(columns);
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row) {
		table_row(table, row);
	}
	return table_print(table);
}
