#include "client/ctl/exit.h"
#include "client/ctl/table.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdio.h>

static void prints(struct table *table, const char *text)
{
	cr_assert_eq(table_print(table), EXIT_DONE);
	fflush(stdout);
	cr_assert_stdout_eq_str(text);
}

TestSuite(ctl_table, .init = cr_redirect_stdout);

Test(ctl_table, columns_are_as_wide_as_their_widest_cell)
{
	struct table *table = table_new("NAME|>SIZE");

	table_cell(table, "a");
	table_cell(table, "1");
	table_cell(table, "länger");
	table_cell(table, "12345");
	prints(table, "NAME     SIZE\na           1\nlänger  12345\n");
}

Test(ctl_table, invisible_characters_are_shown_and_have_the_width_of_what_is_printed)
{
	struct table *table = table_new("NAME|COMMAND");

	table_cell(table, "a\u202Eb");
	table_cell(table, "one");
	table_cell(table, "plain");
	table_cell(table, "\u200Btwo\U000E0041");
	prints(table, "NAME        COMMAND\na\\u{202E}b  one\nplain       \\u{200B}two\\u{E0041}\n");
}

Test(ctl_table, a_cell_of_invisible_characters_alone_is_not_empty)
{
	struct table *table = table_new("NAME");

	table_cell(table, "\xc2\xad\xc2\xad\xc2\xad");
	table_cell(table, "");
	prints(table, "NAME\n\\u{AD}\\u{AD}\\u{AD}\n-\n");
}
