/* JSON as YAML. tests/operators/terminal reads what gpuwmctl writes with PyYAML. */
#include "client/ctl/output.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* value: given back to jansson. */
static void writes(json_t *value, const char *expected)
{
	char *text = NULL;
	size_t bytes;
	FILE *stream = open_memstream(&text, &bytes);

	cr_assert_not_null(value);
	yaml_write(stream, value);
	fclose(stream);
	cr_expect_str_eq(text, expected, "%s", text);
	free(text);
	json_decref(value);
}

Test(ctl_yaml, objects_and_arrays_are_blocks)
{
	writes(json_pack("{s:[{s:s, s:[i, i]}, {s:i}], s:{s:{s:b}}}", "list", "name", "a", "numbers", 1, -2,
			 "size", 3, "deep", "deeper", "deepest", 1),
	       "---\n"
	       "list:\n"
	       "  - name: \"a\"\n"
	       "    numbers:\n"
	       "      - 1\n"
	       "      - -2\n"
	       "  - size: 3\n"
	       "deep:\n"
	       "  deeper:\n"
	       "    deepest: true\n");
	writes(json_pack("[[i, [i]], s]", 1, 2, "x"), "---\n- - 1\n  - - 2\n- \"x\"\n");
}

Test(ctl_yaml, what_is_empty_stands_on_the_line)
{
	writes(json_pack("{s:[], s:{}, s:n, s:b}", "a", "b", "c", "d", 0),
	       "---\na: []\nb: {}\nc: null\nd: false\n");
	writes(json_array(), "---\n[]\n");
}

Test(ctl_yaml, texts_are_always_quoted)
{
	writes(json_pack("[s, s, s, s]", "yes", "1.5", "2026-01-01", "- a: b #"),
	       "---\n- \"yes\"\n- \"1.5\"\n- \"2026-01-01\"\n- \"- a: b #\"\n");
	writes(json_pack("s", "ü \"模\" \\ 🚀"), "---\n\"ü \\\"模\\\" \\\\ 🚀\"\n");
}

Test(ctl_yaml, characters_that_yaml_forbids_are_numbers)
{
	writes(json_pack("s", "\t\n\x7f\xc2\x85\u2028\ufeff\uffff"),
	       "---\n\"\\u0009\\u000A\\u007F\\u0085\\u2028\\uFEFF\\uFFFF\"\n");
	writes(json_stringn("a\0b", 3), "---\n\"a\\u0000b\"\n");
}

Test(ctl_yaml, keys_that_mean_something_else_are_quoted)
{
	writes(json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "Yes", 1, "n", 2, "1st", 3, "", 4, "a-b", 5, "nn_1",
			 6),
	       "---\n\"Yes\": 1\n\"n\": 2\n\"1st\": 3\n\"\": 4\n\"a-b\": 5\nnn_1: 6\n");
}

Test(ctl_yaml, a_long_key_has_a_line_of_its_own)
{
	char key[200], expected[300];

	memset(key, 'k', sizeof(key) - 1);
	key[sizeof(key) - 1] = '\0';
	snprintf(expected, sizeof(expected), "---\nouter:\n  ? %s\n  :\n    - 1\n  b: 2\n", key);
	writes(json_pack("{s:{s:[i], s:i}}", "outer", key, 1, "b", 2), expected);
}

Test(ctl_yaml, real_numbers_have_a_point)
{
	writes(json_pack("[f, f, f]", 1.5, 1e20, 3.0), "---\n- 1.5\n- 1.0e+20\n- 3.0\n");
}
