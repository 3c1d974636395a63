/* A map on the wire and a struct in memory, by their record. */
#include "../../proto/record.h"
#include "tests/support/fail_alloc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

/* ---- a record with a row of every kind ---- */

struct place {
	const char *device;
	uint64_t bytes;
};

static const struct record_field place_rows[] = {
	FIELD_TEXT(struct place, device, 8),
	FIELD_U64_OR(struct place, bytes, 0, UINT64_MAX),
};
static const struct record place_record = {.name = "place", RECORD(struct place, place_rows)};

/* A type of its own: a truth value on the wire, 'y' or 'n' in memory, 'n' if it is missing. */
static void read_letter(struct fields *f, const char *key, const msgpack_object *value, msgpack_zone *zone,
			void *ret)
{
	cr_assert_not_null(zone);
	if (value && value->type != MSGPACK_OBJECT_BOOLEAN)
		fields_wrong(f, key, "is no letter");
	*(char *)ret = value && value->via.boolean ? 'y' : 'n';
}

static void put_letter(struct message_writer *w, const char *key, const void *member)
{
	message_put_bool(w, key, *(const char *)member == 'y');
}

static const struct record_codec letter_codec = {"letter", read_letter, put_letter};

struct all {
	uint64_t number, numbered;
	const uint64_t *maybe_number;
	int64_t wait;
	bool truth, defaulted;
	const bool *maybe_truth;
	const char *text, *maybe_text, *word;
	const struct version_id *id;
	const struct digest *maybe_id;
	const struct error *error, *maybe_error;
	const struct place *place;
	struct {
		const uint64_t *items;
		uint32_t count;
	} numbers;
	struct {
		const uint32_t *items;
		uint32_t count;
	} users;
	struct {
		const char *const *items;
		uint32_t count;
	} texts, maybe_texts;
	struct {
		const struct place *items;
		uint32_t count;
	} places, maybe_places;
	struct {
		const struct place *items;
		const struct error *const *errors;
		uint32_t count;
	} each;
	struct {
		const char *const *items;
		const struct error *const *errors;
		uint32_t count;
	} each_text;
	char letter;
};

static const struct record_field all_rows[] = {
	FIELD_U64(struct all, number),
	FIELD_U64_OR(struct all, numbered, 7, 100),
	FIELD_U64_MAYBE(struct all, maybe_number),
	FIELD_I64_OR(struct all, wait, 0, -1),
	FIELD_BOOL(struct all, truth),
	FIELD_BOOL_OR(struct all, defaulted, true),
	FIELD_BOOL_MAYBE(struct all, maybe_truth),
	FIELD_TEXT(struct all, text, 4),
	FIELD_TEXT_MAYBE(struct all, maybe_text, 2000),
	FIELD_TEXT_OR(struct all, word, 8, "current"),
	FIELD_ID(struct all, id),
	FIELD_ID_MAYBE(struct all, maybe_id),
	FIELD_ERROR(struct all, error),
	FIELD_ERROR_MAYBE(struct all, maybe_error),
	FIELD_MAP_MAYBE(struct all, place, struct place, &place_record),
	FIELD_U64S(struct all, numbers, 3),
	FIELD_U32S_MAYBE(struct all, users, 2),
	FIELD_TEXTS(struct all, texts, 2, 4),
	FIELD_TEXTS_MAYBE(struct all, maybe_texts, 2, 4),
	FIELD_MAPS(struct all, places, 2, struct place, &place_record),
	FIELD_MAPS_MAYBE(struct all, maybe_places, 2, struct place, &place_record),
	FIELD_MAPS_EACH(struct all, each, 4, struct place, &place_record),
	FIELD_TEXTS_EACH_MAYBE(struct all, each_text, 4, 4),
	FIELD_CODEC(struct all, letter, RECORD_MAYBE, char, &letter_codec),
};

static int check_all(const void *value, struct error *error)
{
	const struct all *all = value;

	return all->number == 666 ? error_set(error, -EINVAL, "another one", "the number is of the beast") : 0;
}

static const struct record all_record = {RECORD(struct all, all_rows), .check = check_all};

/* ---- a message and what was read ---- */

static struct message_writer w;
static struct message m;
static struct all read;
static struct error error;

static void begin(void)
{
	message_writer_init(&w, 1 << 20);
	message_begin_map(&w, NULL);
}

/* m is what was written. */
static void end(void)
{
	const char *why;

	message_end(&w);
	cr_assert_eq(message_finish(&w), 0);
	cr_assert_eq(message_read_body(w.buffer.data, w.buffer.size, &m, &why), 0, "%s", why);
}

static void clear(void)
{
	message_clear(&m);
	message_writer_clear(&w);
}

TestSuite(record, .fini = clear);

static const struct version_id some_id = {{1, 2, 3}};
static const struct digest some_digest = {{4, 5, 6}};
static const struct error some_error = {-ENOSPC, "no room", "retire one"};
static const struct place some_places[] = {{"host", 5}, {"GPU-1", 0}};
static const uint64_t some_numbers[] = {1, UINT64_MAX, 3};
static const char *const some_texts[] = {"a", ""};

/* All required keys, and nothing else. */
static struct all least(void)
{
	return (struct all){
		.number = 1,
		.numbered = 7,
		.defaulted = true,
		.text = "text",
		.word = "current",
		.id = &some_id,
		.error = &some_error,
		.letter = 'n',
	};
}

static void write(const struct all *all)
{
	clear();
	begin();
	record_put(&w, &all_record, all);
	end();
}

static void reread(const struct all *all)
{
	write(all);
	cr_assert_eq(record_read(&all_record, &m, &read, &error), 0, "%s", error.message);
}

static uint32_t keys_written(void)
{
	return m.body->via.map.size;
}

/* ---- what was written is read ---- */

/* What has no member is the writer's and the reader's own. */
Test(record, loops_and_open_maps_are_left_alone)
{
	static const struct record_field rows[] = {
		FIELD_U64(struct place, bytes),
		FIELD_LOOP("loop", &place_record),
		FIELD_OPEN_MAYBE("open", &place_record),
	};
	static const struct record looped = {RECORD(struct place, rows)};
	struct place place = {0};

	begin();
	record_put(&w, &looped, &some_places[0]);
	message_put_text(&w, "open", "no map");
	end();
	cr_expect_eq(keys_written(), 2);
	cr_assert_eq(record_read(&looped, &m, &place, &error), 0, "%s", error.message);
	cr_expect_eq(place.bytes, 5);
}

Test(record, what_is_required)
{
	struct all all = least();

	reread(&all);
	cr_expect_eq(read.number, 1);
	cr_expect_not(read.truth);
	cr_expect_str_eq(read.text, "text");
	cr_expect(version_id_equal(read.id, &some_id));
	cr_expect(read.error->code == -ENOSPC && strcmp(read.error->detail, "retire one") == 0);
	cr_expect(read.numbers.items && read.numbers.count == 0, "an empty array is there");
	cr_expect(read.texts.items && read.places.items);
}

Test(record, what_may_be_missing_is_null_or_its_default)
{
	struct all all = least();

	reread(&all);
	cr_expect_eq(keys_written(), 10, "defaults are not written: %u", keys_written());
	cr_expect_eq(read.numbered, 7);
	cr_expect_eq(read.wait, 0);
	cr_expect(read.defaulted);
	cr_expect_str_eq(read.word, "current");
	cr_expect_null(read.maybe_number);
	cr_expect_null(read.maybe_truth);
	cr_expect_null(read.maybe_text);
	cr_expect_null(read.maybe_id);
	cr_expect_null(read.maybe_error);
	cr_expect_null(read.place);
	cr_expect(!read.users.items && read.users.count == 0);
	cr_expect_null(read.maybe_texts.items);
	cr_expect_null(read.maybe_places.items);
	cr_expect(!read.each_text.items && !read.each_text.errors);
	cr_expect_eq(read.letter, 'n');
}

Test(record, numbers_and_texts_that_are_there)
{
	struct all all = least();
	const uint64_t maybe = 0;
	const bool no = false;

	all.number = UINT64_MAX;
	all.numbered = 100;
	all.maybe_number = &maybe;
	all.wait = -1;
	all.truth = true;
	all.defaulted = false;
	all.maybe_truth = &no;
	all.maybe_text = "";
	all.word = "other";
	all.maybe_id = &some_digest;
	all.maybe_error = &some_error;
	all.letter = 'y';
	reread(&all);
	cr_expect_eq(read.number, UINT64_MAX);
	cr_expect_eq(read.numbered, 100);
	cr_expect(read.maybe_number && *read.maybe_number == 0);
	cr_expect_eq(read.wait, -1);
	cr_expect(read.truth && !read.defaulted);
	cr_expect(read.maybe_truth && !*read.maybe_truth);
	cr_expect(read.maybe_text && !*read.maybe_text);
	cr_expect_str_eq(read.word, "other");
	cr_expect(digest_equal(read.maybe_id, &some_digest));
	cr_expect_str_eq(read.maybe_error->message, "no room");
	cr_expect_eq(read.letter, 'y');
}

Test(record, maps_and_arrays_that_are_there)
{
	struct all all = least();
	const uint32_t users[] = {1000, UINT32_MAX};

	all.place = &some_places[0];
	all.numbers.items = some_numbers;
	all.numbers.count = 3;
	all.users.items = users;
	all.users.count = 2;
	all.texts.items = some_texts;
	all.texts.count = 2;
	all.maybe_texts.items = some_texts;
	all.places.items = some_places;
	all.places.count = 2;
	all.maybe_places.items = &some_places[1];
	all.maybe_places.count = 1;
	reread(&all);
	cr_expect(read.place->bytes == 5 && strcmp(read.place->device, "host") == 0);
	cr_expect(read.numbers.count == 3 && read.numbers.items[1] == UINT64_MAX);
	cr_expect(read.users.count == 2 && read.users.items[1] == UINT32_MAX);
	cr_expect(read.texts.count == 2 && strcmp(read.texts.items[0], "a") == 0 && !*read.texts.items[1]);
	cr_expect(read.maybe_texts.items && read.maybe_texts.count == 0, "an empty array is there");
	cr_expect(read.places.count == 2 && read.places.items[1].bytes == 0);
	cr_expect_str_eq(read.places.items[0].device, "host");
	cr_expect_str_eq(read.maybe_places.items[0].device, "GPU-1");
}

Test(record, other_keys_are_skipped)
{
	struct all all = least();

	begin();
	message_put_u64(&w, "unknown", 1);
	record_put(&w, &all_record, &all);
	message_begin_map(&w, "numberless");
	message_put_u64(&w, "number", 2);
	message_end(&w);
	end();
	cr_assert_eq(record_read(&all_record, &m, &read, &error), 0, "%s", error.message);
	cr_expect_eq(read.number, 1);
}

Test(record, a_map_of_its_own)
{
	struct all all = least();

	begin();
	record_put_map(&w, "all", &all_record, &all);
	end();
	cr_expect_eq(keys_written(), 1);
	cr_expect_eq(m.body->via.map.ptr[0].val.via.map.size, 10);
}

Test(record, no_map_is_an_empty_one)
{
	static const struct record empty = {
		.size = sizeof(struct place), .fields = &place_rows[1], .field_count = 1};
	struct message none = {0};
	struct place place;

	cr_expect_eq(record_read(&empty, &none, &place, &error), 0);
	cr_expect_eq(place.bytes, 0);
}

/* ---- what is wrong ---- */

static void refused(const char *message, unsigned line)
{
	error.code = 0;
	cr_expect_eq(record_read(&all_record, &m, &read, &error), -EINVAL, "line %u", line);
	cr_expect_eq(error.code, -EINVAL, "line %u", line);
	cr_expect_str_eq(error.message, message, "line %u: %s", line, error.message);
}
#define REFUSED(message) refused(message, __LINE__)

/* One key in place of the record's own. */
static void begin_without(const char *key)
{
	struct all all = least();

	clear();
	begin();
	for (size_t i = 0; i < all_record.field_count; i++) {
		const struct record one = {.fields = &all_rows[i], .field_count = 1};

		if (strcmp(all_rows[i].key, key) != 0)
			record_put(&w, &one, &all);
	}
}

static void with_text(const char *key, const char *text)
{
	begin_without(key);
	message_put_text(&w, key, text);
	end();
}

static void with_number(const char *key, int64_t number)
{
	begin_without(key);
	message_put_i64(&w, key, number);
	end();
}

static void with_map(const char *key)
{
	begin_without(key);
	message_begin_map(&w, key);
	message_end(&w);
	end();
}

Test(record, what_is_missing)
{
	static const char *const required[] = {"number",  "truth", "text",   "id",  "error",
					       "numbers", "texts", "places", "each"};
	char message[64];

	for (size_t i = 0; i < sizeof(required) / sizeof(*required); i++) {
		begin_without(required[i]);
		end();
		snprintf(message, sizeof(message), "\"%s\" is missing", required[i]);
		REFUSED(message);
		with_text(required[i], NULL); /* nil */
		REFUSED(message);
	}
}

Test(record, a_wrong_type)
{
	with_text("number", "1");
	REFUSED("\"number\" is no unsigned integer");
	with_number("number", -1);
	REFUSED("\"number\" is no unsigned integer");
	with_number("maybe_truth", 1);
	REFUSED("\"maybe_truth\" is neither true nor false");
	with_number("maybe_number", -1);
	REFUSED("\"maybe_number\" is no unsigned integer");
	with_text("wait", "1");
	REFUSED("\"wait\" is no integer of 64 bits");
	with_number("truth", 1);
	REFUSED("\"truth\" is neither true nor false");
	with_number("text", 1);
	REFUSED("\"text\" is no text");
	with_number("id", 1);
	REFUSED("\"id\" is no text");
	with_text("id", "00112233445566778899AABBCCDDEEFF");
	REFUSED("\"id\" is not 32 lower-case hexadecimal digits");
	with_number("error", 1);
	REFUSED("\"error\" is no map");
	with_map("maybe_error");
	REFUSED("\"maybe_error\" is no error");
	with_number("place", 1);
	REFUSED("\"place\" is no map");
	with_map("numbers");
	REFUSED("\"numbers\" is no array");
	with_number("letter", 1);
	REFUSED("\"letter\" is no letter");
}

Test(record, a_text_that_is_none)
{
	with_text("text", "five5");
	REFUSED("\"text\" has 5 bytes, the limit is 4");
	with_text("text", "\xc3z");
	REFUSED("\"text\" is no UTF-8");
	with_text("text", "12345678");
	memcpy((char *)memmem(w.buffer.data, w.buffer.size, "12345678", 8) + 2, "\0", 1);
	REFUSED("\"text\" has 8 bytes, the limit is 4");
	with_text("maybe_text", "12345678");
	memcpy((char *)memmem(w.buffer.data, w.buffer.size, "12345678", 8) + 2, "\0", 1);
	REFUSED("\"maybe_text\" has a zero byte in it");
}

Test(record, out_of_range)
{
	with_number("numbered", 101);
	REFUSED("\"numbered\" is 101, at most it is 100");
	with_number("wait", -2);
	REFUSED("\"wait\" is -2, at least it is -1");
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

Test(record, arrays_above_their_limit)
{
	with_numbers("numbers", 3, 1);
	cr_expect_eq(record_read(&all_record, &m, &read, &error), 0);
	with_numbers("numbers", 4, 1);
	REFUSED("\"numbers\" has 4 elements, the limit is 3");
	with_numbers("texts", 3, 1);
	REFUSED("\"texts\" has 3 elements, the limit is 2");
}

Test(record, wrong_elements)
{
	with_numbers("texts", 1, 1);
	REFUSED("\"texts\" is no text");
	with_numbers("places", 2, 1);
	REFUSED("a map was expected");
	with_numbers("users", 1, UINT64_C(1) << 32);
	REFUSED("\"users\" is 4294967296, at most it is 4294967295");
	begin_without("numbers");
	message_begin_array(&w, "numbers");
	message_put_i64(&w, NULL, -1);
	message_end(&w);
	end();
	REFUSED("\"numbers\" is no unsigned integer");
}

Test(record, what_is_wrong_with_a_map_inside)
{
	with_map("place");
	REFUSED("\"device\" is missing");
	begin_without("places");
	message_begin_array(&w, "places");
	record_put_map(&w, NULL, &place_record, &some_places[0]);
	message_begin_map(&w, NULL);
	message_put_text(&w, "device", "nine bytes");
	message_end(&w);
	message_end(&w);
	end();
	REFUSED("\"device\" has 10 bytes, the limit is 8");
}

Test(record, each_element_by_itself)
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
	cr_assert_eq(record_read(&all_record, &m, &read, &error), 0, "%s", error.message);
	cr_assert_eq(read.each.count, 3);
	cr_expect_str_eq(read.each.errors[0]->message, "\"device\" is missing");
	cr_expect_null(read.each.errors[1]);
	cr_expect_eq(read.each.items[1].bytes, 5);
	cr_expect_str_eq(read.each.errors[2]->message, "a map was expected");
	cr_assert_eq(read.each_text.count, 2);
	cr_expect_str_eq(read.each_text.errors[0]->message, "\"each_text\" has 5 bytes, the limit is 4");
	cr_expect_null(read.each_text.errors[1]);
	cr_expect_str_eq(read.each_text.items[1], "four");
}

Test(record, the_first_error_stays)
{
	begin();
	message_put_u64(&w, "numbered", 1000);
	message_put_u64(&w, "letter", 1000);
	end();
	REFUSED("\"number\" is missing");
}

Test(record, what_a_row_cant_say)
{
	struct all all = least();

	all.number = 666;
	write(&all);
	REFUSED("the number is of the beast");
	cr_expect_str_eq(error.detail, "another one");
}

Test(record, no_memory)
{
	struct all all = least();
	char text[2000];
	unsigned n = 0;

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	all.maybe_text = text;
	all.maybe_error = &some_error;
	all.place = &some_places[0];
	all.texts.items = some_texts;
	all.texts.count = 2;
	write(&all);
	for (;;) {
		int r;

		fail_alloc_arm(++n);
		r = record_read(&all_record, &m, &read, &error);
		if (!fail_alloc_disarm())
			break;
		cr_assert_eq(r, -ENOMEM);
		cr_expect_str_eq(error.message, "out of memory for a message");
	}
	cr_expect_gt(n, 2);
	cr_expect_str_eq(read.maybe_text, text);
}
