/* Lines and rows of top's pictures, letters of versions, bars. */
#include "client/ctl/top/view.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const struct grid_column columns[] = {
	{"ID", 4, true, 0},
	{"NAME", 0, false, 0},
	{"MORE", 6, false, 30},
	{0},
};

static const char *row_of(struct picture *picture, const char *id, const char *name, const char *more)
{
	grid_row(picture, columns, STYLE_PLAIN, (const char *[]){id, name, more});
	return picture->lines[picture->count - 1];
}

Test(ctl_top_picture, rows_fit_and_leave_columns_out)
{
	struct picture picture = {.columns = 32};

	cr_assert_str_eq(row_of(&picture, "7", "short", "x"), "   7  short               x");
	cr_assert_str_eq(row_of(&picture, "12345", "a-name-that-is-too-long@v1", ""),
			 "1…45  a-name-t…o-long@v1");
	picture_clear(&picture);
	picture.columns = 20;
	cr_assert_str_eq(row_of(&picture, "7", "short", "x"), "   7  short");
	picture_line(&picture, STYLE_PLAIN, "%s", "ééééééééééééééééééééé");
	cr_assert_str_eq(picture.lines[1], "éééééééééééééééééééé");
	picture_section(&picture, "PART");
	cr_assert(picture.section_count == 1 && strcmp(picture.lines[picture.sections[0]], "PART") == 0);
	picture_clear(&picture);
	cr_assert(picture.count == 0 && picture.columns == 20);
}

Test(ctl_top_picture, a_very_narrow_terminal_gets_what_fits)
{
	struct picture picture = {.columns = 5};

	cr_assert_str_eq(row_of(&picture, "7", "short", "x"), "   7 ");
	picture_clear(&picture);
}

Test(ctl_top_picture, bars_are_filled_by_share)
{
	char bar[BAR_BYTES];

	cr_assert_str_eq(view_bar(0.5, 4, bar), "##..");
	cr_assert_str_eq(view_bar(-1, 4, bar), "....");
	cr_assert_str_eq(view_bar(7, 4, bar), "####");
	cr_assert_eq(strlen(view_bar(1, 1000, bar)), BAR_BYTES - 1);
}

static json_t *list_of(int first, int count)
{
	json_t *versions = json_array();
	char id[40];

	for (int i = first; i < first + count; i++) {
		snprintf(id, sizeof(id), "%032d", i);
		json_array_append_new(
			versions, json_pack("{s:s, s:s}", "version", id, "state", i == 1 ? "failed" : "ready"));
	}
	return json_pack("{s:o}", "versions", versions);
}

Test(ctl_top_picture, versions_keep_their_letters)
{
	struct letters letters = {0};
	json_t *list = list_of(1, 3), *later = list_of(3, 60);

	letters_update(&letters, list);
	cr_assert_eq(letters_of(&letters, "00000000000000000000000000000001"), LETTER_OTHER, "it failed");
	cr_assert_eq(letters_of(&letters, "00000000000000000000000000000002"), 'a');
	cr_assert_eq(letters_of(&letters, "00000000000000000000000000000003"), 'b');
	letters_update(&letters, later);
	cr_assert_eq(letters_of(&letters, "00000000000000000000000000000003"), 'b');
	cr_assert_eq(letters_of(&letters, "00000000000000000000000000000004"), 'a');
	cr_assert_eq(letters_of(&letters, "00000000000000000000000000000029"), 'A');
	cr_assert_eq(letters_of(&letters, "00000000000000000000000000000060"), LETTER_OTHER, "there are 52");
	json_decref(list);
	json_decref(later);
}

Test(ctl_top_picture, rows_are_sorted_as_people_look)
{
	struct top_view view = {.sort = SORT_SIZE};
	struct view_row rows[] = {{"b", 1, 9, 5, NULL}, {"a", 2, 3, 5, NULL}, {"c", 1, 4, 7, NULL}};

	view_rows_sort(&view, rows, 3);
	cr_assert(rows[0].name[0] == 'a' && rows[1].name[0] == 'b');
	view.sort = SORT_LEASES;
	view_rows_sort(&view, rows, 3);
	cr_assert(rows[0].name[0] == 'b' && rows[1].name[0] == 'c');
	view.sort = SORT_AGE;
	view_rows_sort(&view, rows, 3);
	cr_assert(rows[0].name[0] == 'c' && rows[1].name[0] == 'a');
	view.sort = SORT_NAME;
	view.reverse = true;
	view_rows_sort(&view, rows, 3);
	cr_assert(rows[0].name[0] == 'c' && rows[2].name[0] == 'a');
}

Test(ctl_top_picture, the_filter_knows_no_case)
{
	struct top_view view = {.filter = "LLaMa"};

	cr_assert(view_shows(&view, "meta/llama-3") && !view_shows(&view, "qwen"));
	view.filter[0] = '\0';
	cr_assert(view_shows(&view, "qwen"));
}
