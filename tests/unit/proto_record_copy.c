/* Copies of structs: one block, which outlives what was copied. */
#include "tests/support/fail_alloc.h"
#include "tests/support/proto/record_all.h"

#include <malloc.h>
#include <stdlib.h>

TestSuite(record_copy, .init = record_begin, .fini = record_clear);

static struct all *copy;

/* It is in the block of the copy, and not where it was copied from. */
static bool inside(const void *pointer)
{
	const char *at = pointer, *begin_of_copy = (const char *)copy;

	return at > begin_of_copy && at < begin_of_copy + malloc_usable_size(copy);
}

static void copy_all(void)
{
	copy = record_copy(&all_record, &all);
	cr_assert_not_null(copy);
}

/* A copy of what was read, whose message is gone. */
static void copy_read(void)
{
	put_all();
	cr_assert_eq(record_read(&all_record, &m, &got, &record_error), 0, "%s", record_error.message);
	copy = record_copy(&all_record, &got);
	cr_assert_not_null(copy);
	record_clear();
	memset(&got, 0xff, sizeof(got));
}

Test(record_copy, numbers_texts_and_ids)
{
	const uint64_t maybe = 9;
	const bool yes = true;

	all.number = UINT64_MAX;
	all.maybe_number = &maybe;
	all.wait = -1;
	all.maybe_truth = &yes;
	all.maybe_text = "another text";
	all.maybe_id = &some_digest;
	all.letter = 'y';
	copy_read();
	cr_expect(copy->number == UINT64_MAX && *copy->maybe_number == 9 && copy->wait == -1);
	cr_expect(*copy->maybe_truth && copy->defaulted && !copy->truth);
	cr_expect(inside(copy->maybe_number) && inside(copy->maybe_truth) && inside(copy->text));
	cr_expect(inside(copy->id) && inside(copy->maybe_id) && inside(copy->error));
	cr_expect_str_eq(copy->text, "text");
	cr_expect_str_eq(copy->maybe_text, "another text");
	cr_expect_str_eq(copy->word, "current");
	cr_expect(version_id_equal(copy->id, &some_id) && digest_equal(copy->maybe_id, &some_digest));
	cr_expect(copy->error->code == -ENOSPC && strcmp(copy->error->detail, "retire one") == 0);
	cr_expect_eq(copy->letter, 'y');
	free(copy);
}

Test(record_copy, what_is_missing_stays_null_and_what_is_empty_stays_there)
{
	copy_read();
	cr_expect_null(copy->maybe_number);
	cr_expect_null(copy->maybe_truth);
	cr_expect_null(copy->maybe_text);
	cr_expect_null(copy->maybe_id);
	cr_expect_null(copy->maybe_error);
	cr_expect_null(copy->place);
	cr_expect_null(copy->maybe_texts.items);
	cr_expect_null(copy->maybe_places.items);
	cr_expect_null(copy->each_text.errors);
	cr_expect_null(copy->marked.marks.items);
	cr_expect_null(copy->reference.text);
	cr_expect(copy->numbers.items && copy->numbers.count == 0);
	cr_expect(copy->texts.items && copy->places.items && copy->each.errors);
	free(copy);
}

Test(record_copy, maps_arrays_and_splices)
{
	const uint32_t users[] = {1000, UINT32_MAX, 3};

	all.place = &some_places[0];
	all.maybe_error = &some_error;
	all.numbers.items = some_numbers;
	all.numbers.count = 3;
	all.users.items = users;
	all.users.count = 2;
	all.texts.items = some_texts;
	all.texts.count = 2;
	all.places.items = some_places;
	all.places.count = 2;
	all.marked.mark = 4;
	all.marked.marks.items = some_texts;
	all.marked.marks.count = 1;
	copy_read();
	cr_expect(inside(copy->place) && inside(copy->place->device) && inside(copy->maybe_error));
	cr_expect(inside(copy->numbers.items) && inside(copy->users.items) && inside(copy->texts.items));
	cr_expect(inside(copy->texts.items[1]) && inside(copy->places.items[0].device));
	cr_expect(inside(copy->marked.marks.items) && inside(copy->marked.marks.items[0]));
	cr_expect_str_eq(copy->place->device, "host");
	cr_expect_str_eq(copy->maybe_error->message, "no room");
	cr_expect(copy->numbers.items[1] == UINT64_MAX && copy->users.items[1] == UINT32_MAX);
	cr_expect(copy->texts.count == 2 && strcmp(copy->texts.items[0], "a") == 0 && !*copy->texts.items[1]);
	cr_expect_str_eq(copy->places.items[1].device, "GPU-1");
	cr_expect_eq(copy->places.items[0].bytes, 5);
	cr_expect_eq(copy->marked.mark, 4);
	cr_expect_str_eq(copy->marked.marks.items[0], "a");
	free(copy);
}

Test(record_copy, errors_of_elements)
{
	const struct error *const errors[] = {NULL, &some_error};

	all.each_text.items = some_texts;
	all.each_text.errors = errors;
	all.each_text.count = 2;
	copy_all();
	cr_expect_null(copy->each_text.errors[0]);
	cr_expect(inside(copy->each_text.errors) && inside(copy->each_text.errors[1]));
	cr_expect_str_eq(copy->each_text.errors[1]->message, "no room");
	cr_expect_str_eq(copy->each_text.items[0], "a");
	free(copy);
}

Test(record_copy, the_text_of_a_codec)
{
	char text[] = "m@v1";

	all.reference.text = text;
	strcpy(all.reference.ref.model, "m");
	copy_all();
	memset(text, 'x', sizeof(text) - 1);
	cr_expect(inside(copy->reference.text));
	cr_expect_str_eq(copy->reference.text, "m@v1");
	cr_expect_str_eq(copy->reference.ref.model, "m");
	free(copy);
}

Test(record_copy, no_memory)
{
	fail_alloc_arm(1);
	cr_expect_null(record_copy(&all_record, &all));
	cr_expect(fail_alloc_disarm());
	fail_alloc_arm(2);
	copy_all();
	cr_expect_not(fail_alloc_disarm(), "it is one block");
	free(copy);
}
