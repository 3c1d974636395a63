#include "../../base/text.h"

#include <criterion/criterion.h>
#include <string.h>

Test(text, ends_with_what_has_more_before_it)
{
	cr_expect(text_ends("model.safetensors", ".safetensors"));
	cr_expect(text_ends("ab", "b"));
	cr_expect_not(text_ends(".safetensors", ".safetensors"));
	cr_expect_not(text_ends("s", ".safetensors"));
	cr_expect_not(text_ends("", ""));
	cr_expect_not(text_ends("model.safetensors.tmp", ".safetensors"));
}

Test(text, the_last_part_of_a_path_is_behind_its_last_slash)
{
	cr_expect_str_eq(path_last("/a/b.json"), "b.json");
	cr_expect_str_eq(path_last("b.json"), "b.json");
	cr_expect_str_eq(path_last("/a/"), "");
}

Test(text, names_stay_beneath_a_folder_and_in_sight)
{
	static const char *const right[] = {"a", "a.b", "a/b", "1_Pooling/config.json", "a/b/c.d"};
	static const char *const wrong[] = {"",     ".",   "..",   ".a",   "/",    "/a",     "a/",
					    "a//b", "a/.", "a/..", "a/.b", "../a", "a/../b", "./a"};

	for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++)
		cr_expect(path_is_beneath(right[i]), "%s", right[i]);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		cr_expect_not(path_is_beneath(wrong[i]), "%s", wrong[i]);
}

Test(text, a_list_is_the_beginning_that_has_room)
{
	struct text_list list = {0};
	char text[8] = "";

	text_list_add(&list, text, sizeof(text), ", ", "abc");
	cr_expect_str_eq(text, "abc");
	text_list_add(&list, text, sizeof(text), ", ", "def");
	cr_expect_str_eq(text, "abc");
	text_list_add(&list, text, sizeof(text), ", ", "h"); /* it would have room */
	cr_expect_str_eq(text, "abc");
	cr_expect(list.count == 3 && list.shown == 1 && list.length == 3);
}

Test(text, a_list_may_fill_its_room)
{
	struct text_list list = {0};
	char text[8] = "";

	text_list_add(&list, text, sizeof(text), ", ", "abc");
	text_list_add(&list, text, sizeof(text), ", ", "de");
	cr_expect_str_eq(text, "abc, de");
	cr_expect(list.count == 2 && list.shown == 2);
}
