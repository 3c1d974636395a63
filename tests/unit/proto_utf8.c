#include "../../base/utf8.h"

#include <criterion/criterion.h>
#include <string.h>

static char shown[256];

static const char *show(const char *text)
{
	cr_assert_eq(utf8_show(text, shown, sizeof(shown)), strlen(shown));
	return shown;
}

#define SHOWS(text, as) cr_expect_str_eq(show(text), as)

Test(utf8, letters_of_every_length_are_shown_as_they_are)
{
	SHOWS("", "");
	SHOWS("llama 3/ä中😀", "llama 3/ä中😀");
	SHOWS("שלום مرحبا", "שלום مرحبا");
	SHOWS("\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf");
}

Test(utf8, what_changes_the_direction_is_shown_by_its_number)
{
	SHOWS("a\u202Eb", "a\\u{202E}b");
	SHOWS("\u202A\u202B\u202C\u202D", "\\u{202A}\\u{202B}\\u{202C}\\u{202D}");
	SHOWS("\u2066\u2067\u2068\u2069", "\\u{2066}\\u{2067}\\u{2068}\\u{2069}");
	SHOWS("\u200E\u200F\u061C", "\\u{200E}\\u{200F}\\u{61C}");
}

Test(utf8, what_is_invisible_is_shown_by_its_number)
{
	SHOWS("\u200B\u200C\u200D\u2060\uFEFF", "\\u{200B}\\u{200C}\\u{200D}\\u{2060}\\u{FEFF}");
	SHOWS("\xc2\xad\u034F\u115F\u17B4\u180E\u3164\uFFA0",
	      "\\u{AD}\\u{34F}\\u{115F}\\u{17B4}\\u{180E}\\u{3164}\\u{FFA0}");
	SHOWS("\uFE00\uFE0F\uFFF9", "\\u{FE00}\\u{FE0F}\\u{FFF9}");
	SHOWS("\u2028\u2029", "\\u{2028}\\u{2029}");
	SHOWS("\U000E0001\U000E0041\U000E0100\U000E0FFF", "\\u{E0001}\\u{E0041}\\u{E0100}\\u{E0FFF}");
	SHOWS("\U0001BCA0\U0001D173", "\\u{1BCA0}\\u{1D173}");
}

Test(utf8, their_neighbours_are_shown_as_they_are)
{
	static const char *const neighbours[] = {"\xc2\xae",   "\u200A",     "\u2010", "\u2027", "\u202F",
						 "\u205F",     "\u2070",     "\uFE10", "\uFDFF", "\uFF00",
						 "\U000E1000", "\U000DFFFF", "\u061B", "\uFFFD"};

	for (size_t i = 0; i < sizeof(neighbours) / sizeof(*neighbours); i++)
		SHOWS(neighbours[i], neighbours[i]);
}

Test(utf8, controls_and_what_is_no_utf8_become_marks)
{
	SHOWS("a\nb\x1b[31m\x7f\xc2\x9b", "a?b?[31m???");
	SHOWS("\xff\xe2\x80 \xed\xa0\x80", "??? ???");
}

Test(utf8, what_does_not_fit_is_left_out_as_a_whole)
{
	char small[9];

	memset(small, 'x', sizeof(small));
	cr_expect_eq(utf8_show("\u202Eab", small, sizeof(small)), 8);
	cr_expect_str_eq(small, "\\u{202E}");
	cr_expect_eq(utf8_show("a\u202Eb", small, sizeof(small)), 1);
	cr_expect_str_eq(small, "a");
	cr_expect_eq(utf8_show("1234567中", small, sizeof(small)), 7);
	cr_expect_eq(utf8_show("a", small, 1), 0);
	cr_expect_str_eq(small, "");
}

Test(utf8, the_room_for_what_is_shown_is_enough)
{
	static const char *const longest[] = {"\xc2\xad",   "\u034F", "\u061C", "\u202E",
					      "\U000E0FFF", "\xff",   "a"};

	for (size_t i = 0; i < sizeof(longest) / sizeof(*longest); i++)
		cr_expect_lt(strlen(show(longest[i])), UTF8_SHOWN_MAX(strlen(longest[i])));
}

Test(utf8, a_character_that_is_cut_off_is_none)
{
	cr_expect_eq(utf8_character("a", 1), 1);
	cr_expect_eq(utf8_character("😀", 4), 4);
	for (size_t left = 1; left < 4; left++)
		cr_expect_eq(utf8_character("😀", left), 0, "%zu bytes", left);
	cr_expect_eq(utf8_character("ä", 1), 0);
}

Test(utf8, a_text_is_cut_between_characters)
{
	cr_expect_eq(utf8_cut("abc", 5), 3);
	cr_expect_eq(utf8_cut("abc", 2), 2);
	cr_expect_eq(utf8_cut("aä中", 6), 6);
	cr_expect_eq(utf8_cut("aä中", 5), 3);
	cr_expect_eq(utf8_cut("aä中", 2), 1);
	cr_expect_eq(utf8_cut("中", 2), 0);
	cr_expect_eq(utf8_cut("", 3), 0);
}
