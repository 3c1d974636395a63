#include "wrap.h"

#include <string.h>

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
