/* A version's key as the loader reads it. */
#include "../../proto/key.h"
#include "tests/support/fail_alloc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>

static struct message_writer w;
static struct message m;
static struct fields f;

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

/* f has the fields of what was written. */
static void end(void)
{
	const char *why;

	message_end(&w);
	cr_assert_eq(message_finish(&w), 0);
	cr_assert_eq(message_read_body(w.buffer.data, w.buffer.size, &m, &why), 0, "%s", why);
	fields_of(&f, m.body);
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
	uint32_t count = 1;

	cr_expect_null(key_read(&f, "key", &count));
	cr_expect_eq(count, 0);
	cr_expect_eq(f.error.code, -EINVAL);
	cr_expect_str_eq(f.error.message, message, "%s", f.error.message);
}

Test(key, is_read_as_it_was_written)
{
	struct key_field *fields;
	uint32_t count;

	begin_key();
	key_write(&w, "dtype", "bf16");
	key_write(&w, "tp", "8");
	end_key();
	fields = key_read(&f, "key", &count);
	cr_assert(fields && count == 2 && !f.error.code);
	cr_expect_str_eq(fields[0].name, "dtype");
	cr_expect_str_eq(fields[1].value, "8");
	free(fields);
}

Test(key, may_be_missing)
{
	uint32_t count = 1;

	begin();
	end();
	cr_expect_null(key_read(&f, "key", &count));
	cr_expect(count == 0 && !f.error.code);
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
	key_write(&w, "..", "x");
	end_key();
	cr_expect_null(key_read(&f, "key", &(uint32_t){0}));
	cr_expect_eq(f.error.code, -EINVAL);
	cr_expect(strstr(f.error.message, "the key's field \"..\" "), "%s", f.error.message);
}

Test(key, has_no_field_twice)
{
	begin_key();
	key_write(&w, "dtype", "bf16");
	key_write(&w, "tp", "8");
	key_write(&w, "dtype", "f16");
	end_key();
	refused("the key's field \"dtype\" is there twice");
}

Test(key, has_a_bounded_number_of_fields)
{
	char name[16], message[64];

	begin_key();
	for (int i = 0; i <= KEY_FIELDS_MAX; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		key_write(&w, name, "x");
	}
	end_key();
	snprintf(message, sizeof(message), "a key of %d fields; at most %d", KEY_FIELDS_MAX + 1,
		 KEY_FIELDS_MAX);
	refused(message);
}

Test(key, without_memory_is_an_error)
{
	uint32_t count;

	begin_key();
	key_write(&w, "dtype", "bf16");
	end_key();
	fail_alloc_arm(1);
	cr_expect_null(key_read(&f, "key", &count));
	cr_expect(fail_alloc_disarm());
	cr_expect_eq(f.error.code, -ENOMEM);
}
