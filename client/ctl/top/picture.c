#include "view.h"

#include "../line.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 4096
#define GAP 2 /* between two columns */
#define FLEXIBLE_MIN 6

void picture_clear(struct picture *picture)
{
	for (size_t i = 0; i < picture->count; i++)
		free(picture->lines[i]);
	free(picture->lines);
	*picture = (struct picture){.columns = picture->columns};
}

/* Takes the text over. */
static void picture_add(struct picture *picture, char *text)
{
	char **lines = text ? realloc(picture->lines, (picture->count + 1) * sizeof(*lines)) : NULL;

	if (!lines) {
		free(text);
		return;
	}
	picture->lines = lines;
	picture->lines[picture->count++] = text;
}

void picture_styled(struct picture *picture, const char *text)
{
	picture_add(picture, strdup(text));
}

void picture_line(struct picture *picture, enum style style, const char *format, ...)
{
	char text[LINE_BYTES], *line = NULL;
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	text[text_fit(text, picture->columns)] = '\0';
	if (asprintf(&line, "%s%s%s", style == STYLE_PLAIN ? "" : terminal_style(STDOUT_FILENO, style), text,
		     style == STYLE_PLAIN ? "" : terminal_style(STDOUT_FILENO, STYLE_PLAIN)) < 0)
		line = NULL;
	picture_add(picture, line);
}

void picture_section(struct picture *picture, const char *title)
{
	picture_line(picture, STYLE_PLAIN, "%s", "");
	if (picture->section_count < sizeof(picture->sections) / sizeof(picture->sections[0]))
		picture->sections[picture->section_count++] = picture->count;
	picture_line(picture, STYLE_BOLD, "%s", title);
}

/* ---- rows -------------------------------------------------------------------- */

/* The width of each flexible column. */
static unsigned flexible_width(const struct picture *picture, const struct grid_column *columns)
{
	unsigned taken = 0, flexible = 0;

	for (const struct grid_column *c = columns; c->head; c++) {
		if (picture->columns < c->from)
			continue;
		taken += c->width + (c > columns ? GAP : 0);
		flexible += c->width == 0;
	}
	if (flexible == 0 || picture->columns < taken + flexible * FLEXIBLE_MIN)
		return FLEXIBLE_MIN;
	return (picture->columns - taken) / flexible;
}

static void cell_add(char *line, size_t size, const char *cell, unsigned width, bool right)
{
	char cut[LINE_BYTES];
	size_t length = strlen(line), shown;

	text_cut(cell, width, cut, sizeof(cut));
	shown = text_width(cut);
	snprintf(line + length, size - length, "%*s%s%*s", right ? (int)(width - shown) : 0, "", cut,
		 right ? 0 : (int)(width - shown), "");
}

void grid_row(struct picture *picture, const struct grid_column *columns, enum style style,
	      const char *const *cells)
{
	const unsigned flexible = flexible_width(picture, columns);
	char line[LINE_BYTES] = "";
	size_t length;

	for (size_t i = 0; columns[i].head; i++) {
		const unsigned width = columns[i].width ? columns[i].width : flexible;

		if (picture->columns < columns[i].from)
			continue;
		if (i > 0)
			cell_add(line, sizeof(line), "", GAP, false);
		cell_add(line, sizeof(line), cells[i], width, columns[i].right);
	}
	for (length = strlen(line); length > 0 && line[length - 1] == ' '; length--)
		line[length - 1] = '\0';
	picture_line(picture, style, "%s", line);
}

void grid_heads(struct picture *picture, const struct grid_column *columns)
{
	const char *heads[GRID_COLUMNS_MAX];

	for (size_t i = 0; columns[i].head; i++)
		heads[i] = columns[i].head;
	grid_row(picture, columns, STYLE_DIM, heads);
}
