#include "option.h"

#include <string.h>

#define COLUMNS_MAX 26 /* of what most options take; a longer one stands on a line of its own */
#define LEFT_TEXT 64
#define HELP_TEXT 512

void lines_wrap(FILE *file, const char *text, size_t column, size_t indent)
{
	const char *gap = "";

	while (*text) {
		size_t length = 0;
		int depth = 0;

		for (; text[length] && (text[length] != ' ' || depth > 0); length++)
			depth += (text[length] == '[') - (text[length] == ']');
		if (*gap && column + strlen(gap) + length > LINE_COLUMNS) {
			fprintf(file, "\n%*s", (int)indent, "");
			column = indent;
			gap = "";
		}
		fprintf(file, "%s%.*s", gap, (int)length, text);
		column += strlen(gap) + length;
		gap = " ";
		text += length + strspn(text + length, " ");
	}
	fputc('\n', file);
}

/* ---- two columns --------------------------------------------------------- */

void help_entry_print(const char *left, size_t columns, const char *right)
{
	const size_t indent = 2 + columns + 2;

	printf("  %-*s", (int)columns, left);
	if (strlen(left) > columns)
		printf("\n%*s", (int)indent, "");
	else
		fputs("  ", stdout);
	lines_wrap(stdout, right, indent, indent);
}

static const char *option_left(const struct option_row *row, char ret_text[LEFT_TEXT])
{
	char letter[8] = "";

	if (row->letter)
		snprintf(letter, sizeof(letter), "-%c, ", row->letter);
	snprintf(ret_text, LEFT_TEXT, "%s--%s%s%s", letter, row->name, row->value ? " " : "",
		 row->value ? row->value : "");
	return ret_text;
}

size_t options_columns(const struct option_row *rows, size_t columns)
{
	char text[LEFT_TEXT];

	for (; rows && rows->name; rows++) {
		size_t length = strlen(option_left(rows, text));

		if (length > columns && length <= COLUMNS_MAX)
			columns = length;
	}
	return columns;
}

void options_print(const struct option_row *rows, size_t columns)
{
	char left[LEFT_TEXT], help[HELP_TEXT], rest[LEFT_TEXT];

	for (; rows && rows->name; rows++) {
		rest[0] = '\0';
		if (rows->needs)
			snprintf(rest, sizeof(rest), " (needs --%s)", rows->needs);
		else if (rows->take == take_count)
			snprintf(rest, sizeof(rest), "; by default %llu",
				 (unsigned long long)*(const uint64_t *)rows->into);
		else if (rows->take == take_seconds)
			snprintf(rest, sizeof(rest), "; by default %g",
				 (double)*(const uint64_t *)rows->into / 1000);
		snprintf(help, sizeof(help), "%s%s", rows->help, rest);
		help_entry_print(option_left(rows, left), columns, help);
	}
}

/* ---- a program's help ---------------------------------------------------- */

/* Prints the next line of the text, and returns what follows it; NULL: it was the last one. */
static const char *paragraph_print(const char *text, size_t column)
{
	char line[HELP_TEXT];
	size_t length = strcspn(text, "\n");

	snprintf(line, sizeof(line), "%.*s", (int)length, text);
	lines_wrap(stdout, line, column, column);
	return text[length] ? text + length + 1 : NULL;
}

void command_line_help(const struct command_line *line, const struct option_row *always)
{
	static const char begin[] = "usage: ";
	const size_t columns = options_columns(line->rows, options_columns(always, 0));

	for (const char *text = line->usage; text;) {
		printf("%*s%s ", (int)sizeof(begin) - 1, text == line->usage ? begin : "", line->program);
		text = paragraph_print(text, sizeof(begin) + strlen(line->program));
	}
	putchar('\n');
	for (const char *text = line->about; text;)
		text = paragraph_print(text, 0);
	puts("\noptions:");
	options_print(line->rows, columns);
	options_print(always, columns);
	if (line->more)
		line->more();
}
