/* Columns that texts take, and texts that lose their middle. */
#include "client/ctl/line.h"

#include <criterion/criterion.h>

static void cuts(const char *text, size_t columns, const char *expected)
{
	char cut[TEXT_CUT_MAX(100)];

	text_cut(text, columns, cut, sizeof(cut));
	cr_expect_str_eq(cut, expected, "%s to %zu: %s", text, columns, cut);
	cr_expect_leq(text_width(cut), columns);
}

Test(ctl_width, a_character_takes_one_column_or_two_or_none)
{
	cr_expect_eq(text_width(""), 0);
	cr_expect_eq(text_width("länger"), 6);
	cr_expect_eq(text_width("模型"), 4);
	cr_expect_eq(text_width("🚀"), 2);
	cr_expect_eq(text_width("e\u0301"), 1);
}

Test(ctl_width, what_is_not_utf8_takes_a_column_a_byte)
{
	cr_expect_eq(text_width("a\xff\xc3"), 3);
}

Test(ctl_width, a_text_that_fits_is_not_cut)
{
	cuts("llama@v1", 8, "llama@v1");
	cuts("模型", 4, "模型");
}

Test(ctl_width, a_long_text_loses_its_middle)
{
	cuts("llama-3.1-70b-instruct@v12", 11, "llama…t@v12");
	cuts("abcdef", 2, "…f");
	cuts("abcdef", 1, "…");
}

Test(ctl_width, a_wide_character_is_not_cut_in_two)
{
	cuts("模型模型模型", 7, "模…型");
	cuts("模型模型模型", 8, "模…模型");
}

Test(ctl_width, a_combining_character_stays_with_its_own)
{
	cuts("abcde\u0301fgh", 7, "abc…fgh");
}

Test(ctl_width, as_many_bytes_fit_as_take_the_columns)
{
	cr_expect_eq(text_fit("länger", 2), 3);
	cr_expect_eq(text_fit("模型", 3), 3);
	cr_expect_eq(text_fit("ab", 10), 2);
}
