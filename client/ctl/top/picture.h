/* The lines of a picture, which is drawn on a terminal or printed. */
#ifndef GPUWM_CTL_TOP_PICTURE_H
#define GPUWM_CTL_TOP_PICTURE_H

#include "../terminal.h"

#include <stdbool.h>
#include <stddef.h>

struct picture {
	unsigned columns; /* no line is wider */
	char **lines;
	size_t count;
	/* Lines that say where a section begins, for the key that goes from one to the next. */
	size_t sections[8], section_count;
};

void picture_clear(struct picture *picture);
/* Adds a line, of UTF-8 as utf8_show makes it. What has no room is cut. If memory is short, the line is left out. */
void picture_line(struct picture *picture, enum style style, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Adds a line with styles in it, which must fit. */
void picture_styled(struct picture *picture, const char *text);
/* Adds an empty line and a heading, at which a section begins. */
void picture_section(struct picture *picture, const char *title);

/* ---- rows of a table ---- */

/* A column: its head and width. Width 0: what the others leave, shared by all such columns. */
struct grid_column {
	const char *head; /* NULL ends the columns */
	unsigned width;
	bool right;
	unsigned from; /* narrower pictures leave the column out; 0: it is always there */
};

#define GRID_COLUMNS_MAX 10
/* Adds the row of heads, or a row of cells in the columns' order. A cell that is too long loses its middle. */
void grid_heads(struct picture *picture, const struct grid_column *columns);
void grid_row(struct picture *picture, const struct grid_column *columns, enum style style,
	      const char *const *cells);

#endif
