/* A version's key as the loader reads it. */
#include "../../proto/wire/reference.h"
#include "tests/support/fail_alloc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>

static struct message_writer w;
static struct message m;
static struct error error;

/* A message with a key. */
struct keyed {
	struct {
		const struct key_pair *items;
		uint32_t count;
	} key;
};
static struct keyed keyed;

static int check_keyed(const void *value, struct error *ret)
{
	const struct keyed *params = value;

	return key_pairs_check(params->key.items, params->key.count, ret);
}

static const struct record_field keyed_rows[] = {
	FIELD_MAPS_MAYBE(struct keyed, key, KEY_FIELDS_MAX, struct key_pair, &key_pair_record),
};
static const struct record keyed_record = {RECORD(struct keyed, keyed_rows), .check = check_keyed};

static void begin(void)
{
	message_writer_init(&w, 1 << 20);
	message_begin_map(&w, NULL);
}

static void begin_key(void)
{
	begin();
	message_begin_array(&w, "key");
}

static void key_write(const char *name, const char *value)
{
	record_put_map(&w, NULL, &key_pair_record, &(struct key_pair){name, value});
}

/* m is what was written. */
static void end(void)
{
	const char *why;

	message_end(&w);
	cr_assert_eq(message_finish(&w), 0);
	cr_assert_eq(message_read_body(w.buffer.data, w.buffer.size, &m, &why), 0, "%s", why);
}

static void end_key(void)
{
	message_end(&w);
	end();
}

static void clear(void)
{
	message_clear(&m);
	message_writer_clear(&w);
}

TestSuite(key, .fini = clear);

static void refused(const char *message)
{
	cr_expect_eq(record_read(&keyed_record, &m, &keyed, &error), -EINVAL);
	cr_expect_str_eq(error.message, message, "%s", error.message);
}

Test(key, is_read_as_it_was_written)
{
	struct key_field *fields;

	begin_key();
	key_write("dtype", "bf16");
	key_write("tp", "8");
	end_key();
	cr_assert_eq(record_read(&keyed_record, &m, &keyed, &error), 0);
	cr_assert_eq(keyed.key.count, 2);
	fields = key_fields_new(keyed.key.items, 2);
	cr_expect_str_eq(fields[0].name, "dtype");
	cr_expect_str_eq(fields[1].value, "8");
	free(fields);
}

Test(key, is_an_array_of_maps)
{
	begin();
	message_put_text(&w, "key", "x");
	end();
	refused("\"key\" is no array");
}

Test(key, has_fields_with_a_name_and_a_value)
{
	begin_key();
	message_put_u64(&w, NULL, 9);
	end_key();
	refused("a map was expected");
}

Test(key, has_names_as_models_have)
{
	begin_key();
	key_write("..", "x");
	end_key();
	cr_expect_eq(record_read(&keyed_record, &m, &keyed, &error), -EINVAL);
	cr_expect(strstr(error.message, "the key's field \"..\" "), "%s", error.message);
}

Test(key, has_no_field_twice)
{
	begin_key();
	key_write("dtype", "bf16");
	key_write("tp", "8");
	key_write("dtype", "f16");
	end_key();
	refused("the key's field \"dtype\" is there twice");
}

Test(key, has_a_bounded_number_of_fields)
{
	char name[16], message[64];

	begin_key();
	for (int i = 0; i <= KEY_FIELDS_MAX; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		key_write(name, "x");
	}
	end_key();
	snprintf(message, sizeof(message), "\"key\" has %d elements, the limit is %d", KEY_FIELDS_MAX + 1,
		 KEY_FIELDS_MAX);
	refused(message);
}

Test(key, without_memory_is_not_copied)
{
	const struct key_pair pair = {"dtype", "bf16"};

	fail_alloc_arm(1);
	cr_expect_null(key_fields_new(&pair, 1));
	cr_expect(fail_alloc_disarm());
}
