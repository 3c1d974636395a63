#include "line.h"

#include "../../base/clock.h"
#include "../../base/utf8.h"

#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

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
	uint64_t now_ms, seconds;

	ret_text[0] = '\0';
	if (then_ms == 0)
		return ret_text;
	now_ms = clock_wall_ms();
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

/* ---- columns ------------------------------------------------------------- */

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
