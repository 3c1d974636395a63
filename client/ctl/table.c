#include "table.h"

#include "../../base/utf8.h"
#include "exit.h"
#include "line.h"
#include "output.h"
#include "terminal.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COLUMNS_MAX 32
#define GAP 2 /* between columns */
/* A text is not cut below this: less of it would tell nothing. */
#define CUT_MIN 8
/* Optional columns are left out before texts are cut below this. */
#define CUT_OPTIONAL 24

struct shown_column {
	const struct column *column;
	const char *head; /* without its marks */
	bool right, state, optional, left_out;
};

struct table {
	struct shown_column columns[COLUMNS_MAX];
	size_t width; /* columns */
	size_t cells, capacity;
	bool failed; /* memory was short */
	char **cell; /* the heads are the first row */
};

static void cell_append(struct table *table, const char *text)
{
	const size_t size = UTF8_SHOWN_MAX(strlen(text));
	char *shown;

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
	shown = malloc(size);
	if (!shown) {
		table->failed = true;
		return;
	}
	utf8_show(text, shown, size);
	table->cell[table->cells++] = shown;
}

/* Takes the marks off the head. Returns false if the column is not shown. */
static bool column_read(const struct column *column, struct shown_column *ret_shown)
{
	struct shown_column shown = {.column = column, .head = column->head};
	bool wide = false;

	for (; strchr("+>!?", *shown.head) && *shown.head; shown.head++) {
		wide |= *shown.head == '+';
		shown.right |= *shown.head == '>';
		shown.state |= *shown.head == '!';
		shown.optional |= *shown.head == '?';
	}
	*ret_shown = shown;
	return !wide || output_form() == OUTPUT_WIDE;
}

struct table *table_new(const struct column *columns)
{
	struct table *table = calloc(1, sizeof(*table));

	for (; table && columns->head && table->width < COLUMNS_MAX; columns++) {
		struct shown_column *shown = &table->columns[table->width];

		if (!column_read(columns, shown))
			continue;
		cell_append(table, shown->head);
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
		const struct column *column = table->columns[i].column;
		char buffer[CELL_TEXT];
		const char *text = column->cell(row, column->key, buffer);

		cell_append(table, *text ? text : "-");
	}
}

/* Columns of a row whose texts take at most `most` each. */
static size_t row_columns(const struct table *table, const size_t *widths, size_t most)
{
	size_t total = 0;

	for (size_t i = 0; i < table->width; i++) {
		const struct shown_column *shown = &table->columns[i];

		if (!shown->left_out)
			total += GAP + (shown->right || widths[i] < most ? widths[i] : most);
	}
	return total > GAP ? total - GAP : 0;
}

/* Makes a row take at most `columns`. Leaves out optional columns until texts keep CUT_OPTIONAL, and then any columns but the
 * first until texts keep CUT_MIN. Then makes the widest texts narrower. */
static void table_fit(struct table *table, size_t *widths, size_t columns)
{
	for (size_t i = table->width; i > 0 && row_columns(table, widths, CUT_OPTIONAL) > columns; i--)
		table->columns[i - 1].left_out = table->columns[i - 1].optional;
	for (size_t i = table->width; i > 1 && row_columns(table, widths, CUT_MIN) > columns; i--)
		table->columns[i - 1].left_out = true;
	for (size_t total = row_columns(table, widths, SIZE_MAX); total > columns; total--) {
		size_t *widest = NULL; /* of those that may be cut */

		for (size_t i = 0; i < table->width; i++)
			if (!table->columns[i].right && !table->columns[i].left_out && widths[i] > CUT_MIN &&
			    (!widest || widths[i] > *widest))
				widest = &widths[i];
		if (!widest)
			break;
		(*widest)--;
	}
	if (table->width > 0 && widths[0] > columns)
		widths[0] = columns; /* it is the only one that is left */
}

/* A cell of this width, and what separates it from the next one. Returns false if memory is short. */
static bool cell_print(const struct shown_column *shown, const char *text, size_t width, bool last, bool head)
{
	const size_t size = TEXT_CUT_MAX(strlen(text));
	const enum style style = shown->state && !head ? state_style(text) : STYLE_PLAIN;
	char *cut = malloc(size);
	int padding;

	if (!cut)
		return false;
	text_cut(text, width, cut, size);
	padding = (int)(width - text_width(cut));
	if (shown->right)
		printf("%*s", padding, "");
	if (style == STYLE_PLAIN)
		fputs(cut, stdout);
	else
		printf("%s%s%s", terminal_style(STDOUT_FILENO, style), cut,
		       terminal_style(STDOUT_FILENO, STYLE_PLAIN));
	if (!last)
		printf("%*s", shown->right ? GAP : padding + GAP, "");
	free(cut);
	return true;
}

/* The first column from i on that is not left out; table->width: there is none. */
static size_t column_from(const struct table *table, size_t i)
{
	while (i < table->width && table->columns[i].left_out)
		i++;
	return i;
}

/* Returns false if memory is short. */
static bool row_print(const struct table *table, size_t row, const size_t *widths)
{
	for (size_t i = column_from(table, 0), next; i < table->width; i = next) {
		const char *text = table->cell[row * table->width + i];

		next = column_from(table, i + 1);
		if (!cell_print(&table->columns[i], text, widths[i], next == table->width, row == 0))
			return false;
	}
	putchar('\n');
	return true;
}

int table_print(struct table *table)
{
	const unsigned terminal = output_form() == OUTPUT_WIDE ? 0 : terminal_columns(STDOUT_FILENO);
	const size_t columns = terminal ? terminal : SIZE_MAX;
	/* The widest text of each column. */
	size_t *widths = table && !table->failed ? calloc(table->width, sizeof(*widths)) : NULL;
	bool printed = widths;

	for (size_t i = 0; printed && i < table->cells; i++) {
		size_t width = text_width(table->cell[i]), *widest = &widths[i % table->width];

		*widest = width > *widest ? width : *widest;
	}
	if (printed)
		table_fit(table, widths, columns);
	for (size_t row = 0; printed && row < table->cells / table->width; row++)
		printed = row_print(table, row, widths);
	free(widths);
	table_free(table);
	return printed ? EXIT_DONE : (int)exit_with(EXIT_FAILED, NULL, "out of memory for a table");
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

int table_or_say(const struct column *columns, const json_t *rows, const char *none)
{
	if (json_array_size(rows) > 0)
		return table_of(columns, rows);
	say("%s", none);
	return EXIT_DONE;
}
