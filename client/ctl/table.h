/* Aligned tables of JSON objects: a column says how its cell is made from a row. */
#ifndef GPUWM_CTL_TABLE_H
#define GPUWM_CTL_TABLE_H

#include <jansson.h>

#define CELL_TEXT 512

/* Makes the text of a cell, in `text` or elsewhere. key: the column's. */
typedef const char *cell_fn(const json_t *row, const char *key, char text[CELL_TEXT]);

struct column {
	const char *
		head; /* begins with '>': the column is aligned to the right. NULL: there is no further column */
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

#endif
