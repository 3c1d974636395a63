#include "client/lib/json.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

/* The text of what MessagePack bytes mean. */
static void becomes(const char *bytes, size_t size, const char *expected)
{
	msgpack_unpacked u;
	size_t offset = 0;
	char *text;

	msgpack_unpacked_init(&u);
	cr_assert(eq(int, msgpack_unpack_next(&u, bytes, size, &offset), MSGPACK_UNPACK_SUCCESS));
	text = json_text(&u.data);
	cr_assert(text != NULL);
	cr_assert(eq(str, text, (char *)expected));
	free(text);
	msgpack_unpacked_destroy(&u);
}
#define BECOMES(bytes, expected) becomes(bytes, sizeof(bytes) - 1, expected)

Test(json, writes_integers_in_full)
{
	BECOMES("\x00", "0");
	BECOMES("\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615");
	BECOMES("\xd3\x80\x00\x00\x00\x00\x00\x00\x00", "-9223372036854775808");
}

Test(json, writes_constants_and_numbers)
{
	BECOMES("\xc0", "null");
	BECOMES("\xc3", "true");
	BECOMES("\xc2", "false");
	BECOMES("\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00", "1.5");
	BECOMES("\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00", "null");
	BECOMES("\xc4\x01x", "null");
}

Test(json, writes_nested_maps_and_arrays)
{
	BECOMES("\x80", "{}");
	BECOMES("\x90", "[]");
	BECOMES("\x82\xa1"
		"a\x92\x01\x02\xa1"
		"b\x81\xa1"
		"c\xc0",
		"{\"a\":[1,2],\"b\":{\"c\":null}}");
}

Test(json, escapes_what_json_does_not_take)
{
	BECOMES("\xa7\"\\\n\t\x01\x7f/", "\"\\\"\\\\\\n\\t\\u0001\\u007f/\"");
}

Test(json, keeps_utf8_of_every_length)
{
	BECOMES("\xa9\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
}

Test(json, replaces_what_is_no_utf8)
{
	BECOMES("\xa3"
		"a\xff"
		"b",
		"\"a\\ufffdb\"");
	BECOMES("\xa2\xc0\xaf", "\"\\ufffd\\ufffd\""); /* overlong */
	BECOMES("\xa3\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""); /* a surrogate */
	BECOMES("\xa4\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""); /* above U+10FFFF */
	BECOMES("\xa1\xe2", "\"\\ufffd\""); /* cut off */
	BECOMES("\xa2\xc3\x28", "\"\\ufffd(\"");
}

Test(json, writes_nothing_as_an_empty_map)
{
	char *text = json_text(NULL);

	cr_assert(eq(str, text, "{}"));
	free(text);
}
