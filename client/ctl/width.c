#include "width.h"

#include "../../base/utf8.h"

#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

static const char ellipsis[] = "…";

/* The C library knows widths by the locale. gpuwmctl writes UTF-8 whatever the user's locale is. */
static int number_width(wchar_t number)
{
	static locale_t utf8;
	locale_t before;
	int width;

	if (!utf8)
		utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", NULL);
	if (!utf8)
		return 1;
	before = uselocale(utf8);
	width = wcwidth(number);
	uselocale(before);
	return width < 0 ? 1 : width; /* a character that is newer than the C library */
}

/* The character at `text`, and its bytes; one byte where it is not UTF-8. */
static size_t character_width(const char *text, size_t *ret_bytes)
{
	size_t bytes = utf8_character(text, SIZE_MAX);

	*ret_bytes = bytes ? bytes : 1;
	return bytes <= 1 ? 1 : (size_t)number_width((wchar_t)utf8_number(text, bytes));
}

size_t text_width_of(const char *text, size_t length)
{
	size_t width = 0, bytes;

	for (const char *end = text + length; text < end; text += bytes)
		width += character_width(text, &bytes);
	return width;
}

size_t text_width(const char *text)
{
	return text_width_of(text, strlen(text));
}

size_t text_fit(const char *text, size_t columns)
{
	size_t fit = 0, width = 0, bytes;

	while (text[fit]) {
		width += character_width(text + fit, &bytes);
		if (width > columns)
			break;
		fit += bytes;
	}
	return fit;
}

/* The end of the text that takes at most `columns`. */
static const char *text_tail(const char *text, size_t columns)
{
	size_t left = text_width(text), bytes;

	while (left > columns) {
		left -= character_width(text, &bytes);
		text += bytes;
	}
	/* What combines with the character before it can't begin a text. */
	while (*text && character_width(text, &bytes) == 0)
		text += bytes;
	return text;
}

void text_cut(const char *text, size_t columns, char *ret_text, size_t size)
{
	size_t tail = columns / 2;

	if (text_width(text) <= columns)
		snprintf(ret_text, size, "%s", text);
	else
		snprintf(ret_text, size, "%.*s%s%s", (int)text_fit(text, columns - 1 - tail), text, ellipsis,
			 text_tail(text, tail));
}
