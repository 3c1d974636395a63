#include "client/ctl/table.h"
#include "client/ctl/exit.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdio.h>

/* rows: for json_pack, and given back to jansson. */
static void prints(const struct column *columns, json_t *rows, const char *text)
{
	cr_assert_not_null(rows);
	cr_assert_eq(table_of(columns, rows), EXIT_DONE);
	fflush(stdout);
	cr_assert_stdout_eq_str(text);
	json_decref(rows);
}

TestSuite(ctl_table, .init = cr_redirect_stdout);

Test(ctl_table, columns_are_as_wide_as_their_widest_cell)
{
	static const struct column columns[] = {
		{"NAME", cell_text, "name"}, {">SIZE", cell_number, "size"}, {0}};

	prints(columns,
	       json_pack("[{s:s, s:i}, {s:s, s:i}]", "name", "a", "size", 1, "name", "länger", "size", 12345),
	       "NAME     SIZE\na           1\nlänger  12345\n");
}

Test(ctl_table, invisible_characters_are_shown_and_have_the_width_of_what_is_printed)
{
	static const struct column columns[] = {
		{"NAME", cell_text, "name"}, {"COMMAND", cell_text, "command"}, {0}};

	prints(columns,
	       json_pack("[{s:s, s:s}, {s:s, s:s}]", "name", "a\u202Eb", "command", "one", "name", "plain",
			 "command", "\u200Btwo\U000E0041"),
	       "NAME        COMMAND\na\\u{202E}b  one\nplain       \\u{200B}two\\u{E0041}\n");
}

Test(ctl_table, a_cell_of_invisible_characters_alone_is_not_empty)
{
	static const struct column columns[] = {{"NAME", cell_text, "name"}, {0}};

	prints(columns, json_pack("[{s:s}, {s:s}]", "name", "\xc2\xad\xc2\xad\xc2\xad", "name", ""),
	       "NAME\n\\u{AD}\\u{AD}\\u{AD}\n-\n");
}

Test(ctl_table, what_a_row_does_not_have_is_a_dash_or_nothing_at_all)
{
	static const struct column columns[] = {{"TEXT", cell_text, "text"},
						{">NUMBER", cell_number, "number"},
						{">SIZE", cell_size, "size"},
						{">FREE", cell_size_known, "free"},
						{">AGE", cell_age, "age"},
						{">COUNT", cell_count, "count"},
						{"JOINED", cell_join, "joined"},
						{"DEVICES", cell_devices, "devices"},
						{0}};

	prints(columns, json_pack("[{}]"),
	       "TEXT  NUMBER  SIZE  FREE  AGE  COUNT  JOINED  DEVICES\n"
	       "-          0   0 B     -    -      0  -       -\n");
}
