/* Tables of JSON objects: a column says how its cell is made from a row. On a terminal no row is wider than the terminal:
 * the longest texts are cut, and in a narrow one the last columns are left out. With -o wide, and where stdout is no terminal, nothing is cut. */
#ifndef GPUWM_CTL_TABLE_H
#define GPUWM_CTL_TABLE_H

#include "line.h"

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

/* ---- cells that several commands show ---- */

cell_fn cell_text;
cell_fn cell_number; /* "0" where there is none */
/* Of a lease. Those that a gpuwmd gave after restarts begin at a multiple of 2^32: 12884901890 is 3.2. */
cell_fn cell_lease;
cell_fn cell_size; /* of bytes */
cell_fn cell_size_known; /* the same; "" where there is no number */
cell_fn cell_age; /* since a time in milliseconds since 1970 */
cell_fn cell_time; /* of milliseconds */
cell_fn cell_count; /* of an array: how many members it has */
cell_fn cell_join; /* of an array of texts */
cell_fn cell_device; /* shortened */
cell_fn cell_devices; /* of an array of them */
cell_fn cell_name; /* MODEL@TAG of a row that has both; needs no key */
cell_fn cell_ref; /* what other commands take for a version: MODEL@TAG, or its id if it has no name; needs no key */

#endif
