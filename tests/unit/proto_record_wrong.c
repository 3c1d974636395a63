/* What a record refuses, and how it says so. */
#include "tests/support/any/params.h"
#include "tests/support/proto/record_all.h"

TestSuite(record_wrong, .init = record_begin, .fini = record_clear);

static void refused(const char *message)
{
	record_error.code = 0;
	cr_expect_eq(record_read(&all_record, &m, &got, &record_error), -EINVAL, "%s", message);
	cr_expect_eq(record_error.code, -EINVAL, "%s", message);
	cr_expect_str_eq(record_error.message, message, "%s: %s", message, record_error.message);
}

/* One key in place of the record's own. */
static void begin_without(const char *key)
{
	record_clear();
	begin();
	for (size_t i = 0; i < all_record.field_count; i++) {
		const struct record one = {.fields = &all_record.fields[i], .field_count = 1};

		if (strcmp(all_record.fields[i].key, key) != 0)
			record_put(&w, &one, &all);
	}
}

/* A parameter in place of the record's own. */
static void with(struct param param)
{
	begin_without(param.key);
	param.put(&w, &param);
	end();
}
#define WITH(...) with((struct param)__VA_ARGS__)

static void put_map(struct message_writer *to, const struct param *param)
{
	message_begin_map(to, param->key);
	message_end(to);
}
#define MAP(key_)                                                                                              \
	{                                                                                                      \
		.key = (key_), .put = put_map                                                                  \
	}

Test(record_wrong, what_is_missing)
{
	static const char *const required[] = {"number",  "truth", "text",   "id",  "error",
					       "numbers", "texts", "places", "each"};
	char message[64];

	for (size_t i = 0; i < sizeof(required) / sizeof(*required); i++) {
		begin_without(required[i]);
		end();
		snprintf(message, sizeof(message), "\"%s\" is missing", required[i]);
		refused(message);
		WITH(TEXT(required[i], NULL)); /* nil */
		refused(message);
	}
}

Test(record_wrong, a_wrong_value)
{
	static const struct {
		struct param param;
		const char *message;
	} wrong[] = {
		{TEXT("number", "1"), "\"number\" is no unsigned integer"},
		{SIGNED("number", -1), "\"number\" is no unsigned integer"},
		{NUMBER("maybe_truth", 1), "\"maybe_truth\" is neither true nor false"},
		{SIGNED("maybe_number", -1), "\"maybe_number\" is no unsigned integer"},
		{TEXT("wait", "1"), "\"wait\" is no integer of 64 bits"},
		{NUMBER("truth", 1), "\"truth\" is neither true nor false"},
		{NUMBER("text", 1), "\"text\" is no text"},
		{NUMBER("id", 1), "\"id\" is no text"},
		{TEXT("id", "00112233445566778899AABBCCDDEEFF"),
		 "\"id\" is not 32 lower-case hexadecimal digits"},
		{NUMBER("error", 1), "\"error\" is no map"},
		{MAP("maybe_error"), "\"maybe_error\" is no error"},
		{NUMBER("place", 1), "\"place\" is no map"},
		{MAP("place"), "\"device\" is missing"},
		{MAP("numbers"), "\"numbers\" is no array"},
		{NUMBER("letter", 1), "\"letter\" is no letter"},
		{TEXT("text", "five5"), "\"text\" has 5 bytes, the limit is 4"},
		{TEXT("text", "\xc3z"), "\"text\" is no UTF-8"},
		{NUMBER("numbered", 101), "\"numbered\" is 101, at most it is 100"},
		{SIGNED("wait", -2), "\"wait\" is -2, at least it is -1"},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		with(wrong[i].param);
		refused(wrong[i].message);
	}
}

Test(record_wrong, a_text_with_a_zero_byte)
{
	static const struct {
		const char *key, *message;
	} wrong[] = {
		{"text", "\"text\" has 8 bytes, the limit is 4"},
		{"maybe_text", "\"maybe_text\" has a zero byte in it"},
	};

	for (size_t i = 0; i < 2; i++) {
		WITH(TEXT(wrong[i].key, "12345678"));
		memcpy((char *)memmem(w.buffer.data, w.buffer.size, "12345678", 8) + 2, "\0", 1);
		refused(wrong[i].message);
	}
}

static void with_numbers(const char *key, uint32_t count, uint64_t number)
{
	begin_without(key);
	message_begin_array(&w, key);
	for (uint32_t i = 0; i < count; i++)
		message_put_u64(&w, NULL, number);
	message_end(&w);
	end();
}

Test(record_wrong, arrays_above_their_limit)
{
	with_numbers("numbers", 3, 1);
	cr_expect_eq(record_read(&all_record, &m, &got, &record_error), 0);
	with_numbers("numbers", 4, 1);
	refused("\"numbers\" has 4 elements, the limit is 3");
	with_numbers("texts", 3, 1);
	refused("\"texts\" has 3 elements, the limit is 2");
}

Test(record_wrong, wrong_elements)
{
	with_numbers("texts", 1, 1);
	refused("\"texts\" is no text");
	with_numbers("places", 2, 1);
	refused("a map was expected");
	with_numbers("users", 1, UINT64_C(1) << 32);
	refused("\"users\" is 4294967296, at most it is 4294967295");
	begin_without("numbers");
	message_begin_array(&w, "numbers");
	message_put_i64(&w, NULL, -1);
	message_end(&w);
	end();
	refused("\"numbers\" is no unsigned integer");
}

Test(record_wrong, what_is_wrong_with_a_map_inside)
{
	begin_without("places");
	message_begin_array(&w, "places");
	record_put_map(&w, NULL, &place_record, &some_places[0]);
	message_begin_map(&w, NULL);
	message_put_text(&w, "device", "nine bytes");
	message_end(&w);
	message_end(&w);
	end();
	refused("\"device\" has 10 bytes, the limit is 8");
}

Test(record_wrong, each_element_by_itself)
{
	begin_without("each");
	message_begin_array(&w, "each");
	message_begin_map(&w, NULL);
	message_end(&w);
	record_put_map(&w, NULL, &place_record, &some_places[0]);
	message_put_u64(&w, NULL, 1);
	message_end(&w);
	message_begin_array(&w, "each_text");
	message_put_text(&w, NULL, "five5");
	message_put_text(&w, NULL, "four");
	message_end(&w);
	end();
	cr_assert_eq(record_read(&all_record, &m, &got, &record_error), 0, "%s", record_error.message);
	cr_assert_eq(got.each.count, 3);
	cr_expect_str_eq(got.each.errors[0]->message, "\"device\" is missing");
	cr_expect_null(got.each.errors[1]);
	cr_expect_eq(got.each.items[1].bytes, 5);
	cr_expect_str_eq(got.each.errors[2]->message, "a map was expected");
	cr_assert_eq(got.each_text.count, 2);
	cr_expect_str_eq(got.each_text.errors[0]->message, "\"each_text\" has 5 bytes, the limit is 4");
	cr_expect_null(got.each_text.errors[1]);
	cr_expect_str_eq(got.each_text.items[1], "four");
}

Test(record_wrong, the_first_error_stays)
{
	begin();
	message_put_u64(&w, "numbered", 1000);
	message_put_u64(&w, "letter", 1000);
	end();
	refused("\"number\" is missing");
}

Test(record_wrong, what_a_row_cant_say)
{
	all.number = 666;
	put_all();
	refused("the number is of the beast");
	cr_expect_str_eq(record_error.detail, "another one");
}

Test(record_wrong, what_a_row_of_a_splice_cant_say)
{
	all.marked.mark = 13;
	put_all();
	refused("a bad mark");
	WITH(NUMBER("marks", 1));
	refused("\"marks\" is no array");
}
