#include "line.h"

#include "../../base/utf8.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INDENT 4 /* of the rows that a line goes on in */

/* used: the columns of the row that are taken. columns: of the terminal. */
static void words_print(FILE *stream, const char *text, size_t used, size_t columns)
{
	while (*text) {
		const size_t spaces = strspn(text, " "), letters = strcspn(text + spaces, " ");
		const size_t width = text_width_of(text + spaces, letters);

		if (used > INDENT && used + spaces + width > columns) {
			fprintf(stream, "\n%*s", INDENT, "");
			used = INDENT + width;
		} else {
			fwrite(text, 1, spaces, stream);
			used += spaces + width;
		}
		text += spaces;
		fwrite(text, 1, letters, stream);
		text += letters;
	}
}

void line_print(FILE *stream, enum style style, const char *lead, const char *text)
{
	/* stdout may be a stream to memory (--watch), which is shown on the terminal later. */
	const int fd = stream == stderr ? STDERR_FILENO : STDOUT_FILENO;
	const unsigned columns = terminal_columns(fd);

	if (style == STYLE_PLAIN)
		fputs(lead, stream);
	else
		fprintf(stream, "%s%s%s", terminal_style(fd, style), lead, terminal_style(fd, STYLE_PLAIN));
	if (columns > 0)
		words_print(stream, text, text_width(lead), columns);
	else
		fputs(text, stream);
	fputc('\n', stream);
}

/* ---- lines of texts that others chose ------------------------------------- */

static bool lost;

bool line_is_lost(void)
{
	return lost;
}

static void text_print(FILE *stream, const char *text)
{
	const size_t size = text ? UTF8_SHOWN_MAX(strlen(text)) : 0;
	char *shown = text ? malloc(size) : NULL;

	if (!shown) {
		fputs("gpuwmctl: out of memory for a line\n", stderr);
		lost |= stream == stdout;
		return;
	}
	utf8_show(text, shown, size);
	line_print(stream, STYLE_PLAIN, "", shown);
	free(shown);
}

void say(const char *format, ...)
{
	va_list list;
	char *text;

	va_start(list, format);
	if (vasprintf(&text, format, list) < 0)
		text = NULL;
	va_end(list);
	text_print(stdout, text);
	free(text);
}

void line_add(struct line *line, const char *format, ...)
{
	char *piece = NULL, *text = NULL;
	va_list list;
	int length;

	va_start(list, format);
	length = vasprintf(&piece, format, list);
	va_end(list);
	if (length >= 0)
		text = realloc(line->text, line->length + (size_t)length + 1);
	if (text) {
		memcpy(text + line->length, piece, (size_t)length + 1);
		line->text = text;
		line->length += (size_t)length;
	}
	line->failed |= !text;
	if (length >= 0)
		free(piece);
}

static void line_end(struct line *line, FILE *stream)
{
	if (line->length > 0 || line->failed)
		text_print(stream, line->failed ? NULL : line->text);
	free(line->text);
	*line = (struct line){0};
}

void line_say(struct line *line)
{
	line_end(line, stdout);
}

void line_note(struct line *line)
{
	fflush(stdout);
	line_end(line, stderr);
}
