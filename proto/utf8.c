#include "utf8.h"

size_t utf8_character(const char *text)
{
	static const struct {
		unsigned char first, last, second_min, second_max;
		size_t bytes;
	} forms[] = {
		{0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
		{0xed, 0xed, 0x80, 0x9f, 3}, /* above are the halves of surrogates */
		{0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4},
		{0xf4, 0xf4, 0x80, 0x8f, 4},
	};
	const unsigned char *at = (const unsigned char *)text;

	if (at[0] < 0x80)
		return 1;
	for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
		size_t have = 2;

		if (at[0] < forms[i].first || at[0] > forms[i].last)
			continue;
		if (at[1] < forms[i].second_min || at[1] > forms[i].second_max)
			return 0;
		while (have < forms[i].bytes && (at[have] & 0xc0) == 0x80)
			have++;
		return have == forms[i].bytes ? have : 0;
	}
	return 0;
}

bool utf8_valid(const char *text)
{
	while (*text) {
		size_t bytes = utf8_character(text);

		if (bytes == 0)
			return false;
		text += bytes;
	}
	return true;
}

/* C0, DEL, and those of Latin-1. */
static bool is_control(const unsigned char *text)
{
	return text[0] < 0x20 || text[0] == 0x7f || (text[0] == 0xc2 && text[1] >= 0x80 && text[1] < 0xa0);
}

void utf8_make_line(char *text)
{
	while (*text) {
		size_t bytes = is_control((unsigned char *)text) ? 0 : utf8_character(text);

		if (bytes == 0)
			*text = '?';
		text += bytes ? bytes : 1;
	}
}
