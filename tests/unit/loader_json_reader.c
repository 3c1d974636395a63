#include "../../loader/files/json_reader.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char texts[65536];
static struct json_reader r;

static void begin(const char *json)
{
	json_reader_open(json, strlen(json), texts, &r);
}

/* The whole text is one value. */
static void accept(const char *json)
{
	begin(json);
	json_reader_skip(&r);
	json_reader_end(&r);
	cr_expect_null(json_reader_fault(&r), "%s: %s at %zu", json, json_reader_fault(&r), r.at);
}

static void refuse(const char *json, size_t at, const char *says)
{
	begin(json);
	json_reader_skip(&r);
	json_reader_end(&r);
	cr_assert(json_reader_fault(&r), "%s accepted", json);
	cr_expect(strstr(json_reader_fault(&r), says), "%s: %s", json, json_reader_fault(&r));
	cr_expect_eq(r.at, at, "%s: at %zu", json, r.at);
}

Test(json_reader, takes_every_kind_of_value)
{
	static const char *const values[] = {
		"{}",
		"[]",
		"\"\"",
		"0",
		"-0",
		"null",
		"true",
		"false",
		" [ 1 , 2.5e-3 ]\t\r\n",
		"{\"a\":{\"b\":[[]]}}",
	};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		accept(values[i]);
}

Test(json_reader, refuses_what_is_no_json)
{
	refuse("", 0, "too early");
	refuse("  ", 2, "too early");
	refuse("[1,]", 3, "expected a value");
	refuse("[,1]", 1, "expected a value");
	refuse("[1 2]", 3, "expected ',' or ']'");
	refuse("[1}", 2, "expected ',' or ']'");
	refuse("{\"a\" 1}", 5, "expected ':'");
	refuse("{\"a\":1,}", 7, "expected a text");
	refuse("{1:2}", 1, "expected a text");
	refuse("[", 1, "too early");
	refuse("{\"a\":", 5, "too early");
	refuse("nul", 0, "expected a value");
	refuse("truefalse", 4, "something follows");
	refuse("{}{}", 2, "something follows");
	refuse("\xef\xbb\xbf{}", 0, "expected a value");
	refuse("/**/1", 0, "expected a value");
	refuse("'a'", 0, "expected a value");
	refuse("\v1", 0, "expected a value");
}

Test(json_reader, refuses_a_zero_byte_anywhere)
{
	static const char *const places[] = {"[1@]", "[@1]",       "[true@]",    "@{}",
					     "{}@",  "{\"a@\":1}", "{\"a\":1@}", "-@1"};
	char json[16];

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		size_t length = strlen(places[i]);

		memcpy(json, places[i], length);
		*(char *)memchr(json, '@', length) = '\0';
		json_reader_open(json, length, texts, &r);
		json_reader_skip(&r);
		json_reader_end(&r);
		cr_expect(json_reader_fault(&r), "%s accepted", places[i]);
	}
}

Test(json_reader, counts_levels)
{
	char json[2 * (JSON_DEPTH_MAX + 1) + 1] = "";

	memset(json, '[', JSON_DEPTH_MAX);
	memset(json + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
	accept(json);
	memset(json, '[', JSON_DEPTH_MAX + 1);
	memset(json + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
	refuse(json, JSON_DEPTH_MAX, "127");
	accept("[[],[],[[]],{}]");
}

static void decodes(const char *json, const char *expected, size_t length)
{
	struct json_text text = {.length = 77};

	begin(json);
	cr_assert(json_reader_text(&r, &text), "%s: %s", json, json_reader_fault(&r));
	cr_expect_eq(text.length, length, "%s: %zu", json, text.length);
	cr_expect_arr_eq(text.bytes, expected, length + 1, "%s", json);
	cr_expect_leq((size_t)(r.room - texts), strlen(json), "a decoded text fits where its JSON did");
}

Test(json_reader, decodes_texts)
{
	decodes("\"plain\"", "plain", 5);
	decodes("\"\"", "", 0);
	decodes("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8);
	decodes("\"\\u0041\\u00e4\\u20AC\\ud83d\\ude00\"", "A\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 10);
	decodes("\"\xc3\xa4\xf0\x9f\x98\x80\x7f\"", "\xc3\xa4\xf0\x9f\x98\x80\x7f", 7);
	decodes("\"a\\u0000b\"", "a\0b", 3);
}

Test(json_reader, refuses_damaged_texts)
{
	refuse("\"a", 2, "does not end");
	refuse("\"a\\\"", 4, "does not end");
	refuse("\"\n\"", 1, "control character");
	refuse("\"\\x41\"", 2, "escape");
	refuse("\"\\u00g0\"", 5, "hexadecimal");
	refuse("\"\\u00", 5, "hexadecimal");
	refuse("\"\\ud800\"", 7, "surrogate");
	refuse("\"\\udc00\"", 7, "surrogate");
	refuse("\"\\ud800\\u0041\"", 13, "surrogate");
	refuse("\"\xff\"", 1, "UTF-8");
	refuse("\"\xc3", 1, "UTF-8");
	refuse("\"\xed\xa0\x80\"", 1, "UTF-8");
	refuse("\"\xc0\x80\"", 1, "UTF-8");
}

static struct json_number number_of(const char *json)
{
	struct json_number number = {0};

	begin(json);
	cr_assert(json_reader_number(&r, &number), "%s: %s", json, json_reader_fault(&r));
	json_reader_end(&r);
	cr_expect_null(json_reader_fault(&r), "%s", json);
	cr_expect_eq(number.length, strlen(json));
	return number;
}

Test(json_reader, tells_counts_from_other_numbers)
{
	static const char *const others[] = {"-0", "-1", "1.0", "1e0", "0e0", "18446744073709551616", "0.5"};

	cr_expect(number_of("0").is_count && number_of("0").count == 0);
	cr_expect(number_of("18446744073709551615").is_count);
	cr_expect_eq(number_of("18446744073709551615").count, UINT64_MAX);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		cr_expect_not(number_of(others[i]).is_count, "%s", others[i]);
	cr_expect(number_of("-1").is_integer && number_of("18446744073709551616").is_integer);
	cr_expect_not(number_of("1e0").is_integer || number_of("1.0").is_integer);
}

Test(json_reader, refuses_damaged_numbers)
{
	refuse("01", 2, "begins with 0");
	refuse("-", 1, "expected a digit");
	refuse("-a", 1, "expected a digit");
	refuse("1.", 2, "expected a digit");
	refuse("1.e5", 2, "expected a digit");
	refuse(".5", 0, "expected a value");
	refuse("+1", 0, "expected a value");
	refuse("1e", 2, "expected a digit");
	refuse("1e+", 3, "expected a digit");
	refuse("1x", 1, "something follows");
}

/* As far as a double reaches; whoever reads them as one must find no infinity. */
Test(json_reader, refuses_numbers_out_of_range)
{
	char json[512];

	refuse("1e308", 5, "out of range");
	refuse("-1e999", 6, "out of range");
	refuse("0.01e310", 8, "out of range");
	refuse("1e99999999999999999999999", 25, "out of range");
	snprintf(json, sizeof(json), "1%0308d", 0);
	refuse(json, 309, "out of range");
	accept("9e307");
	accept("0.01e309");
	accept("0e999");
	accept("0.000e99999999999999999999999");
	accept("1e-99999999999999999999999");
	snprintf(json, sizeof(json), "0.%0400de405", 1);
	accept(json);
}

Test(json_reader, steps_through_objects_and_arrays)
{
	struct json_text key;
	struct json_number number;
	unsigned sum = 0, keys = 0;

	begin("{\"a\":[1,2,[]],\"b\":[],\"c\":{\"x\":1},\"d\":[4]}");
	cr_assert(json_reader_object(&r));
	while (json_reader_key(&r, &key)) {
		cr_expect_eq(key.bytes[0], "abcd"[keys++]);
		if (json_reader_peek(&r) != JSON_KIND_ARRAY) {
			json_reader_skip(&r);
			continue;
		}
		json_reader_array(&r);
		while (json_reader_item(&r)) {
			if (json_reader_peek(&r) == JSON_KIND_NUMBER && json_reader_number(&r, &number))
				sum += (unsigned)number.count;
			else
				json_reader_skip(&r);
		}
	}
	json_reader_end(&r);
	cr_expect_null(json_reader_fault(&r));
	cr_expect_eq(sum, 7);
	cr_expect_eq(keys, 4);
}

Test(json_reader, keeps_the_first_fault)
{
	struct json_text text;
	size_t at;

	begin("{\n\n \"a\" 1}");
	json_reader_object(&r);
	cr_expect_not(json_reader_key(&r, &text));
	at = r.at;
	cr_expect_eq(json_reader_line(&r), 3);
	json_reader_skip(&r);
	cr_expect_not(json_reader_array(&r) || json_reader_item(&r) || json_reader_text(&r, &text) ||
		      json_reader_null(&r));
	json_reader_end(&r);
	cr_expect_str_eq(json_reader_fault(&r), "expected ':'");
	cr_expect_eq(r.at, at);
}
