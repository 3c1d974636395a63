/* A map on the wire and a struct in memory, by their record. */
#include "tests/support/fail_alloc.h"
#include "tests/support/proto/record_all.h"

TestSuite(record, .init = record_begin, .fini = record_clear);

static void reread(void)
{
	put_all();
	cr_assert_eq(record_read(&all_record, &m, &got, &record_error), 0, "%s", record_error.message);
}

static uint32_t keys_written(void)
{
	return m.body->via.map.size;
}

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
	cr_assert_eq(record_read(&looped, &m, &place, &record_error), 0, "%s", record_error.message);
	cr_expect_eq(place.bytes, 5);
}

Test(record, what_is_required)
{
	reread();
	cr_expect_eq(got.number, 1);
	cr_expect_not(got.truth);
	cr_expect_str_eq(got.text, "text");
	cr_expect(version_id_equal(got.id, &some_id));
	cr_expect(got.error->code == -ENOSPC && strcmp(got.error->detail, "retire one") == 0);
	cr_expect(got.numbers.items && got.numbers.count == 0, "an empty array is there");
	cr_expect(got.texts.items && got.places.items);
}

Test(record, what_may_be_missing_is_null_or_its_default)
{
	reread();
	cr_expect_eq(keys_written(), 11, "defaults are not written: %u", keys_written());
	cr_expect_eq(got.numbered, 7);
	cr_expect_eq(got.wait, 0);
	cr_expect(got.defaulted);
	cr_expect_str_eq(got.word, "current");
	cr_expect_null(got.maybe_number);
	cr_expect_null(got.maybe_truth);
	cr_expect_null(got.maybe_text);
	cr_expect_null(got.maybe_id);
	cr_expect_null(got.maybe_error);
	cr_expect_null(got.place);
	cr_expect(!got.users.items && got.users.count == 0);
	cr_expect_null(got.maybe_texts.items);
	cr_expect_null(got.maybe_places.items);
	cr_expect(!got.each_text.items && !got.each_text.errors);
	cr_expect_eq(got.letter, 'n');
}

Test(record, numbers_and_texts_that_are_there)
{
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
	reread();
	cr_expect_eq(got.number, UINT64_MAX);
	cr_expect_eq(got.numbered, 100);
	cr_expect(got.maybe_number && *got.maybe_number == 0);
	cr_expect_eq(got.wait, -1);
	cr_expect(got.truth && !got.defaulted);
	cr_expect(got.maybe_truth && !*got.maybe_truth);
	cr_expect(got.maybe_text && !*got.maybe_text);
	cr_expect_str_eq(got.word, "other");
	cr_expect(digest_equal(got.maybe_id, &some_digest));
	cr_expect_str_eq(got.maybe_error->message, "no room");
	cr_expect_eq(got.letter, 'y');
}

Test(record, maps_and_arrays_that_are_there)
{
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
	reread();
	cr_expect(got.place->bytes == 5 && strcmp(got.place->device, "host") == 0);
	cr_expect(got.numbers.count == 3 && got.numbers.items[1] == UINT64_MAX);
	cr_expect(got.users.count == 2 && got.users.items[1] == UINT32_MAX);
	cr_expect(got.texts.count == 2 && strcmp(got.texts.items[0], "a") == 0 && !*got.texts.items[1]);
	cr_expect(got.maybe_texts.items && got.maybe_texts.count == 0, "an empty array is there");
	cr_expect(got.places.count == 2 && got.places.items[1].bytes == 0);
	cr_expect_str_eq(got.places.items[0].device, "host");
	cr_expect_str_eq(got.maybe_places.items[0].device, "GPU-1");
}

Test(record, the_keys_of_a_splice_stand_in_the_map_itself)
{
	all.marked.mark = 4;
	all.marked.marks.items = some_texts;
	all.marked.marks.count = 2;
	reread();
	cr_expect_eq(keys_written(), 13);
	cr_expect_eq(got.marked.mark, 4);
	cr_expect(got.marked.marks.count == 2 && strcmp(got.marked.marks.items[0], "a") == 0);
	cr_expect_str_eq(got.text, "text", "the rows around it stay");
	cr_expect_str_eq(got.error->message, "no room");
}

Test(record, a_row_is_found_by_its_key)
{
	cr_expect_eq(record_row(&all_record, "number")->type, RECORD_U64);
	cr_expect_eq(record_row(&all_record, "marks")->type, RECORD_ARRAY, "it stands in the splice");
	cr_expect_null(record_row(&all_record, "marked"), "which has no key itself");
	cr_expect_null(record_row(&all_record, "none"));
}

Test(record, the_first_key_that_might_be_missing)
{
	memset(&all, 0, sizeof(all));
	all.text = "text";
	all.letter = 'a';
	cr_expect_null(record_first_given(&all_record, &all));
	all.maybe_texts.items = some_texts;
	cr_expect_str_eq(record_first_given(&all_record, &all), "maybe_texts");
	all.marked.marks.items = some_texts;
	cr_expect_str_eq(record_first_given(&all_record, &all), "marks", "it stands in the splice");
}

Test(record, other_keys_are_skipped)
{
	begin();
	message_put_u64(&w, "unknown", 1);
	record_put(&w, &all_record, &all);
	message_begin_map(&w, "numberless");
	message_put_u64(&w, "number", 2);
	message_end(&w);
	end();
	cr_assert_eq(record_read(&all_record, &m, &got, &record_error), 0, "%s", record_error.message);
	cr_expect_eq(got.number, 1);
}

Test(record, a_map_of_its_own)
{
	begin();
	record_put_map(&w, "all", &all_record, &all);
	end();
	cr_expect_eq(keys_written(), 1);
	cr_expect_eq(m.body->via.map.ptr[0].val.via.map.size, 11);
}

Test(record, no_map_is_an_empty_one)
{
	static const struct record empty = {
		.size = sizeof(struct place), .fields = &place_rows[1], .field_count = 1};
	struct message none = {0};
	struct place place;

	cr_expect_eq(record_read(&empty, &none, &place, &record_error), 0);
	cr_expect_eq(place.bytes, 0);
}

Test(record, no_memory)
{
	char text[2000];
	unsigned n = 0;

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	all.maybe_text = text;
	all.maybe_error = &some_error;
	all.place = &some_places[0];
	all.texts.items = some_texts;
	all.texts.count = 2;
	put_all();
	for (;;) {
		int r;

		fail_alloc_arm(++n);
		r = record_read(&all_record, &m, &got, &record_error);
		if (!fail_alloc_disarm())
			break;
		cr_assert_eq(r, -ENOMEM);
		cr_expect_str_eq(record_error.message, "out of memory for a message");
	}
	cr_expect_gt(n, 2);
	cr_expect_str_eq(got.maybe_text, text);
}
