/* Tables of JSON objects: a column says how its cell is made from a row. On a terminal no row is wider than the terminal:
 * the longest texts are cut, and in a narrow one the last columns are left out. With -o wide, and where stdout is no terminal, nothing is cut. */
#ifndef GPUWM_CTL_TABLE_H
#define GPUWM_CTL_TABLE_H

#include <jansson.h>

#define CELL_TEXT 512

/* Makes the text of a cell, in `text` or elsewhere. key: the column's. */
typedef const char *cell_fn(const json_t *row, const char *key, char text[CELL_TEXT]);

struct column {
	/* Marks may stand before the text. '>': the column is aligned to the right and never cut, as for numbers. '!': its
	 * texts are states, which have colours on a terminal. '+': only -o wide shows the column. '?': the column is left
	 * out on a terminal that has no room for it, the last such column first. NULL: there is no further column. */
	const char *head;
	cell_fn *cell;
	const char *key; /* of the row's member that the cell shows; NULL where the function needs none */
};

/* The columns stay the caller's. NULL when memory is short. */
struct table;
struct table *table_new(const struct column *columns);
/* The next row. An empty text shows as "-", others as utf8_show makes them. Memory that is short shows when the table is
 * printed. */
void table_row(struct table *table, const json_t *row);
/* Prints to stdout and frees. EXIT_DONE, or EXIT_FAILED after saying that memory is short. */
int table_print(struct table *table);

/* All three for the rows of an array. */
int table_of(const struct column *columns, const json_t *rows);
/* The same; without rows, prints this sentence instead of the heads. */
int table_or_say(const struct column *columns, const json_t *rows, const char *none);

#endif
