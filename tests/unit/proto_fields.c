#include "../../proto/wire/message.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct message m;
static struct fields f;

/* f has the fields of this map. */
static void of_bytes(const char *bytes, size_t count)
{
	const char *why;

	message_clear(&m);
	cr_assert_eq(message_read_body(bytes, count, &m, &why), 0, "%s", why);
	fields_of(&f, m.body);
}
#define OF(literal) of_bytes(literal, sizeof(literal) - 1)

static void clear(void)
{
	message_clear(&m);
}

TestSuite(fields, .fini = clear);

static void wrong(const char *message, unsigned line)
{
	cr_expect_eq(f.error.code, -EINVAL, "line %u", line);
	cr_expect_str_eq(f.error.message, message, "line %u", line);
	fields_of(&f, f.map);
}
#define WRONG(message) wrong(message, __LINE__)

Test(fields, integers)
{
	OF("\x84\xa1u\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xa1i\xff\xa1p\x05\xa1x\xa1y");
	cr_expect_eq(fields_u64(&f, "u"), UINT64_MAX);
	cr_expect_eq(fields_u64_or(&f, "p", 1), 5);
	cr_expect_eq(fields_u64_or(&f, "none", 1), 1);
	cr_expect_eq(fields_i64_or(&f, "i", 0), -1);
	cr_expect_eq(fields_i64_or(&f, "p", 0), 5);
	cr_expect_eq(fields_i64_or(&f, "none", -7), -7);
	cr_expect_eq(f.error.code, 0);
	cr_expect_eq(fields_u64(&f, "i"), 0);
	WRONG("\"i\" is no unsigned integer");
	cr_expect_eq(fields_u64_or(&f, "x", 3), 0);
	WRONG("\"x\" is no unsigned integer");
	cr_expect_eq(fields_i64_or(&f, "u", 3), 0);
	WRONG("\"u\" is no integer of 64 bits");
	cr_expect_eq(fields_i64_or(&f, "x", 3), 0);
	WRONG("\"x\" is no integer of 64 bits");
	cr_expect_eq(fields_u64(&f, "none"), 0);
	WRONG("\"none\" is missing");
}

Test(fields, booleans)
{
	OF("\x83\xa1t\xc3\xa1g\xc2\xa1x\x01");
	cr_expect(fields_bool_or(&f, "t", false));
	cr_expect(!fields_bool_or(&f, "g", true));
	cr_expect(fields_bool_or(&f, "none", true));
	cr_expect_eq(f.error.code, 0);
	cr_expect(!fields_bool_or(&f, "x", true));
	WRONG("\"x\" is neither true nor false");
}

Test(fields, texts)
{
	char text[4] = "old";

	OF("\x84\xa1t\xa3"
	   "abc\xa1"
	   "e\xa0\xa1l\xa4"
	   "abcd\xa1z\xa3"
	   "a\x00"
	   "b");
	fields_text(&f, "t", text, sizeof(text));
	cr_expect_str_eq(text, "abc");
	fields_text(&f, "e", text, sizeof(text));
	cr_expect_str_eq(text, "");
	fields_text_or(&f, "t", text, sizeof(text), "x");
	cr_expect_str_eq(text, "abc");
	fields_text_or(&f, "none", text, sizeof(text), "x");
	cr_expect_str_eq(text, "x");
	cr_expect_eq(f.error.code, 0);
	fields_text(&f, "l", text, sizeof(text));
	cr_expect_str_eq(text, "");
	WRONG("\"l\" has 4 bytes, the limit is 3");
	fields_text(&f, "z", text, sizeof(text));
	cr_expect_str_eq(text, "");
	WRONG("\"z\" has a zero byte in it");
	fields_text(&f, "none", text, sizeof(text));
	WRONG("\"none\" is missing");
	OF("\x82\xa1t\xa2\xc3\xa4\xa1n\xa2\xc3z");
	fields_text(&f, "t", text, sizeof(text));
	cr_expect_str_eq(text, "\u00e4");
	fields_text(&f, "n", text, sizeof(text));
	cr_expect_str_eq(text, "");
	WRONG("\"n\" is no UTF-8");
}

Test(fields, texts_of_other_types)
{
	char text[4] = "old";

	OF("\x82\xa1n\x01\xa1"
	   "b\xc4\x01x");
	fields_text(&f, "n", text, sizeof(text));
	cr_expect_str_eq(text, "");
	WRONG("\"n\" is no text");
	fields_text_or(&f, "b", text, sizeof(text), "x");
	WRONG("\"b\" is no text");
}

Test(fields, identifiers)
{
	uint8_t id[16] = {9};

	OF("\x83\xa1i\xd9\x20"
	   "00112233445566778899aabbccddeeff\xa1u\xd9\x20"
	   "00112233445566778899AABBCCDDEEFF\xa1n\x01");
	fields_hex128(&f, "i", id);
	cr_expect(id[1] == 0x11 && id[15] == 0xff && f.error.code == 0);
	fields_hex128(&f, "u", id);
	cr_expect(id[1] == 0 && id[15] == 0);
	WRONG("\"u\" is not 32 lower-case hexadecimal digits");
	fields_hex128(&f, "n", id);
	WRONG("\"n\" is no text");
}

Test(fields, containers)
{
	const msgpack_object *array;
	uint32_t count = 7;

	OF("\x83\xa1"
	   "a\x93\x01\x02\x03\xa1m\x80\xa1x\x01");
	array = fields_array(&f, "a", &count);
	cr_assert(array && count == 3);
	cr_expect_eq(array[2].via.u64, 3);
	cr_assert(fields_map(&f, "m"));
	cr_expect_eq(f.error.code, 0);
	cr_expect_null(fields_array(&f, "x", &count));
	cr_expect_eq(count, 0);
	WRONG("\"x\" is no array");
	cr_expect_null(fields_array(&f, "none", &count));
	WRONG("\"none\" is missing");
	cr_expect_null(fields_map(&f, "x"));
	WRONG("\"x\" is no map");
	cr_expect_null(fields_map(&f, "none"));
	WRONG("\"none\" is missing");
}

Test(fields, elements_of_an_array_as_texts)
{
	const msgpack_object *array;
	char text[8];
	uint32_t count;

	OF("\x81\xa5roles\x93\xa6worker\x01\xa8"
	   "operator");
	array = fields_array(&f, "roles", &count);
	fields_text_at(&f, &array[0], "roles", text, sizeof(text));
	cr_expect_str_eq(text, "worker");
	cr_expect_eq(f.error.code, 0);
	fields_text_at(&f, &array[1], "roles", text, sizeof(text));
	WRONG("\"roles\" is no text");
	fields_text_at(&f, &array[2], "roles", text, sizeof(text));
	WRONG("\"roles\" has 8 bytes, the limit is 7");
}

Test(fields, nil_is_missing)
{
	OF("\x81\xa1n\xc0");
	cr_expect(!fields_have(&f, "n"));
	cr_expect(!fields_have(&f, "none"));
	cr_expect_eq(fields_u64_or(&f, "n", 4), 4);
	cr_expect_eq(f.error.code, 0);
	fields_u64(&f, "n");
	WRONG("\"n\" is missing");
}

Test(fields, keys_match_whole)
{
	OF("\x83\xa2"
	   "ab\x01\xa3"
	   "abc\x02\xa2"
	   "a\x00\x03");
	cr_expect_eq(fields_u64(&f, "ab"), 1);
	cr_expect_eq(fields_u64(&f, "abc"), 2);
	cr_expect(!fields_have(&f, "a"));
}

Test(fields, the_first_error_stays)
{
	char text[2];

	OF("\x81\xa1l\xa4"
	   "long");
	fields_u64(&f, "first");
	fields_u64(&f, "second");
	fields_text(&f, "l", text, sizeof(text));
	WRONG("\"first\" is missing");
}

Test(fields, no_map_reads_as_empty)
{
	fields_of(&f, NULL);
	cr_expect(!fields_have(&f, "a"));
	cr_expect_eq(f.error.code, 0);
}

Test(fields, what_is_no_map_is_an_error)
{
	uint32_t count;

	OF("\x81\xa1"
	   "a\x91\x05");
	fields_of(&f, fields_array(&f, "a", &count));
	cr_expect(!fields_have(&f, "a"));
	cr_expect_eq(f.error.code, -EINVAL);
	cr_expect_str_eq(f.error.message, "a map was expected");
}

Test(fields, an_error_in_a_field)
{
	struct message_writer w;
	struct error error = {0};
	const struct error sent = {-ENOSPC, "no room", "retire one"};
	const char *why;

	message_writer_init(&w, 4096);
	message_notification(&w, "x");
	message_put_error(&w, "error", &sent);
	message_put_u64(&w, "number", 1);
	message_begin_map(&w, "empty");
	message_end(&w);
	message_end(&w);
	cr_assert_eq(message_finish(&w), 0);
	message_clear(&m);
	cr_assert_eq(message_read(w.buffer.data, w.buffer.size, &m, &why), 0, "%s", why);
	fields_of(&f, m.body);
	cr_expect(!fields_error(&f, "missing", &error));
	cr_expect(fields_error(&f, "error", &error));
	cr_expect_eq(error.code, -ENOSPC);
	cr_expect_str_eq(error.message, "no room");
	cr_expect_str_eq(error.detail, "retire one");
	cr_expect_eq(f.error.code, 0);
	fields_error(&f, "empty", &error);
	WRONG("\"empty\" is no error");
	fields_of(&f, m.body);
	fields_error(&f, "number", &error);
	WRONG("\"number\" is no map");
	message_writer_clear(&w);
}
