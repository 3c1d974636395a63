#include "table.h"

#include "../../proto/utf8.h"
#include "exit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COLUMNS_MAX 16

struct table {
	size_t columns, cells, capacity;
	bool right[COLUMNS_MAX];
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
static char *text_shown(const char *text, size_t length)
{
	char *copy = strndup(text, length), *shown = copy ? malloc(UTF8_SHOWN_MAX(length)) : NULL;

	if (shown)
		utf8_show(copy, shown, UTF8_SHOWN_MAX(length));
	free(copy);
	return shown;
}

static void cell_append(struct table *table, const char *text, size_t length)
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
	copy = text_shown(text, length);
	if (!copy) {
		table->failed = true;
		return;
	}
	table->cell[table->cells++] = copy;
}

struct table *table_new(const char *heads)
{
	struct table *table = calloc(1, sizeof(*table));

	if (!table)
		return NULL;
	while (table->columns < COLUMNS_MAX) {
		size_t length;

		table->right[table->columns] = *heads == '>';
		heads += *heads == '>';
		length = strcspn(heads, "|");
		cell_append(table, heads, length);
		table->columns++;
		if (heads[length] == '\0')
			break;
		heads += length + 1;
	}
	return table;
}

struct table *table_free(struct table *table)
{
	if (!table)
		return NULL;
	for (size_t i = 0; i < table->cells; i++)
		free(table->cell[i]);
	free(table->cell);
	free(table);
	return NULL;
}

void table_cell(struct table *table, const char *text)
{
	if (table && !table->failed)
		cell_append(table, *text ? text : "-", *text ? strlen(text) : 1);
}

void table_cellf(struct table *table, const char *format, ...)
{
	char text[512];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	table_cell(table, text);
}

void table_size(struct table *table, uint64_t bytes)
{
	char text[SHORT_TEXT];

	table_cell(table, size_text(bytes, text));
}

static void row_print(const struct table *table, size_t row, const size_t *width)
{
	for (size_t i = 0; i < table->columns; i++) {
		const char *text = table->cell[row * table->columns + i];
		int padding = (int)(width[i] - text_width(text));
		bool last = i + 1 == table->columns;

		if (table->right[i])
			printf("%*s%s%s", padding, "", text, last ? "" : "  ");
		else
			printf("%s%*s", text, last ? 0 : padding + 2, "");
	}
	putchar('\n');
}

int table_print(struct table *table)
{
	size_t width[COLUMNS_MAX] = {0};

	if (!table || table->failed) {
		table_free(table);
		return exit_with(EXIT_FAILED, NULL, "out of memory for a table");
	}
	for (size_t i = 0; i < table->cells; i++) {
		size_t cell = text_width(table->cell[i]);

		if (cell > width[i % table->columns])
			width[i % table->columns] = cell;
	}
	for (size_t row = 0; row < table->cells / table->columns; row++)
		row_print(table, row, width);
	table_free(table);
	return EXIT_DONE;
}

const char *size_text(uint64_t bytes, char ret_text[SHORT_TEXT])
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes / 1024;
	size_t unit = 0;

	if (bytes < 1024) {
		snprintf(ret_text, SHORT_TEXT, "%u B", (unsigned)bytes);
		return ret_text;
	}
	/* 1023.95 would be printed as 1024.0. */
	while (value >= 1023.95 && unit < 5) {
		value /= 1024;
		unit++;
	}
	snprintf(ret_text, SHORT_TEXT, "%.1f %s", value, units[unit]);
	return ret_text;
}

const char *age_text(uint64_t then_ms, char ret_text[SHORT_TEXT])
{
	struct timespec now;
	uint64_t now_ms, seconds;

	ret_text[0] = '\0';
	if (then_ms == 0)
		return ret_text;
	clock_gettime(CLOCK_REALTIME, &now);
	now_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
	seconds = now_ms > then_ms ? (now_ms - then_ms) / 1000 : 0;
	if (seconds < 120)
		snprintf(ret_text, SHORT_TEXT, "%us", (unsigned)seconds);
	else if (seconds < 7200)
		snprintf(ret_text, SHORT_TEXT, "%um", (unsigned)(seconds / 60));
	else if (seconds < 172800)
		snprintf(ret_text, SHORT_TEXT, "%uh", (unsigned)(seconds / 3600));
	else
		snprintf(ret_text, SHORT_TEXT, "%ud", (unsigned)(seconds / 86400));
	return ret_text;
}

const char *time_text(uint64_t ms, char ret_text[SHORT_TEXT])
{
	if (ms < 1000)
		snprintf(ret_text, SHORT_TEXT, "%u ms", (unsigned)ms);
	else if (ms < 120000)
		snprintf(ret_text, SHORT_TEXT, "%.2f s", (double)ms / 1000);
	else
		snprintf(ret_text, SHORT_TEXT, "%llu:%02llu min", (unsigned long long)(ms / 60000),
			 (unsigned long long)(ms / 1000 % 60));
	return ret_text;
}

const char *rate_text(uint64_t bytes, uint64_t ms, char ret_text[SHORT_TEXT])
{
	char size[SHORT_TEXT];

	ret_text[0] = '\0';
	if (bytes > 0 && ms > 0)
		snprintf(ret_text, SHORT_TEXT, "%.20s/s",
			 size_text((uint64_t)((double)bytes * 1000 / (double)ms), size));
	return ret_text;
}

const char *hex_text(const uint8_t *bytes, size_t count, char *ret_text)
{
	ret_text[0] = '\0';
	for (size_t i = 0; i < count; i++)
		snprintf(ret_text + 2 * i, 3, "%02x", bytes[i]);
	return ret_text;
}
