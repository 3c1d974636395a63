#include "utf8.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

size_t utf8_character(const char *text, size_t left)
{
	static const struct {
		unsigned char first, last, second_min, second_max;
		size_t bytes;
	} forms[] = {
		{0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
		{0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, /* surrogates lie above */
		{0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
		{0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
	};
	const unsigned char *at = (const unsigned char *)text;

	if (at[0] < 0x80)
		return 1;
	for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
		size_t have = 2;

		if (at[0] < forms[i].first || at[0] > forms[i].last)
			continue;
		if (forms[i].bytes > left || at[1] < forms[i].second_min || at[1] > forms[i].second_max)
			return 0;
		while (have < forms[i].bytes && (at[have] & 0xc0) == 0x80)
			have++;
		return have == forms[i].bytes ? have : 0;
	}
	return 0;
}

size_t utf8_cut(const char *text, size_t most)
{
	size_t length = strnlen(text, most);

	while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
		length--;
	return length;
}

bool utf8_valid(const char *text)
{
	while (*text) {
		size_t bytes = utf8_character(text, SIZE_MAX);

		if (bytes == 0)
			return false;
		text += bytes;
	}
	return true;
}

/* Whether a control character begins here: C0, DEL, or one of Latin-1. */
static bool is_control(const unsigned char *text)
{
	return text[0] < 0x20 || text[0] == 0x7f || (text[0] == 0xc2 && text[1] >= 0x80 && text[1] < 0xa0);
}

uint32_t utf8_number(const char *text, size_t bytes)
{
	const unsigned char *at = (const unsigned char *)text;
	uint32_t number = bytes == 1 ? at[0] : at[0] & (0x7f >> bytes);

	for (size_t i = 1; i < bytes; i++)
		number = number << 6 | (at[i] & 0x3f);
	return number;
}

/* Whether most fonts show nothing of a character: Unicode's Default_Ignorable_Code_Point, and also
 * the separators of lines and paragraphs and the characters that frame annotations. All characters
 * that change the direction are among them. */
static bool is_invisible(uint32_t number)
{
	static const struct {
		uint32_t first, last;
	} ranges[] = {
		{0xad, 0xad}, /* soft hyphen */
		{0x34f, 0x34f}, /* combining grapheme joiner */
		{0x61c, 0x61c}, /* Arabic letter mark */
		{0x115f, 0x1160}, /* Hangul fillers */
		{0x17b4, 0x17b5}, /* Khmer inherent vowels */
		{0x180b, 0x180f}, /* Mongolian variation selectors */
		{0x200b, 0x200f}, /* zero-width space and joiners, marks of direction */
		{0x2028, 0x202e}, /* separators; embeddings and overrides of direction */
		{0x2060, 0x206f}, /* word joiner, isolates of direction, shaping */
		{0x3164, 0x3164}, /* Hangul filler */
		{0xfe00, 0xfe0f}, /* variation selectors */
		{0xfeff, 0xfeff}, /* byte order mark */
		{0xffa0, 0xffa0}, /* half-width Hangul filler */
		{0xfff0, 0xfffb}, /* unassigned ones; annotations */
		{0x1bca0, 0x1bca3}, /* shorthand format controls */
		{0x1d173, 0x1d17a}, /* musical format controls */
		{0xe0000, 0xe0fff}, /* tags, further variation selectors */
	};

	for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
		if (number >= ranges[i].first && number <= ranges[i].last)
			return true;
	return false;
}

size_t utf8_show(const char *text, char *ret_text, size_t size)
{
	size_t length = 0;

	while (*text) {
		const unsigned char *at = (const unsigned char *)text;
		size_t bytes = is_control(at) ? 0 : utf8_character(text, SIZE_MAX);
		char number[sizeof "\\u{10FFFF}"];
		const char *shown = text;
		size_t shown_bytes = bytes;

		if (bytes == 0) {
			shown = "?";
			shown_bytes = 1;
		} else if (is_invisible(utf8_number(text, bytes))) {
			shown_bytes =
				(size_t)snprintf(number, sizeof number, "\\u{%X}", utf8_number(text, bytes));
			shown = number;
		}
		if (shown_bytes >= size - length)
			break;
		memcpy(ret_text + length, shown, shown_bytes);
		length += shown_bytes;
		text += bytes ? bytes : 1;
	}
	ret_text[length] = 0;
	return length;
}

void utf8_make_line(char *text)
{
	while (*text) {
		size_t bytes = is_control((unsigned char *)text) ? 0 : utf8_character(text, SIZE_MAX);

		if (bytes == 0)
			*text = '?';
		text += bytes ? bytes : 1;
	}
}
