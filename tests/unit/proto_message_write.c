#include "../../proto/wire/message.h"
#include "tests/support/fail_alloc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct message_writer w;
static struct message m;
static struct fields f;
static const char *why;

static void init(void)
{
	message_writer_init(&w, PACKET_BYTES_MAX);
}

static void clear(void)
{
	message_writer_clear(&w);
	message_clear(&m);
}

TestSuite(message_write, .init = init, .fini = clear);

/* What was written is read: f has the fields of its body. */
static void read_back(void)
{
	cr_assert_eq(message_finish(&w), 0);
	cr_assert_eq(message_read(w.buffer.data, w.buffer.size, &m, &why), 0, "%s", why);
	fields_of(&f, m.body);
}

static void written(const char *bytes, size_t count)
{
	cr_assert_eq(message_finish(&w), 0);
	cr_assert_eq(w.buffer.size, count);
	cr_expect_arr_eq(w.buffer.data, bytes, count);
}
#define WRITTEN(literal) written(literal, sizeof(literal) - 1)

Test(message_write, a_request_in_bytes)
{
	message_request(&w, 7, "ping");
	message_put_u64(&w, "a", 1);
	message_end(&w);
	WRITTEN("\x94\x00\x07\xa4ping\x91\xdf\x00\x00\x00\x01\xa1"
		"a\x01");
}

Test(message_write, the_result_of_a_response_by_itself)
{
	const char result[] = "\xdf\x00\x00\x00\x01\xa1r\x05";
	size_t bytes;
	const void *map;

	message_response(&w, 300);
	message_put_u64(&w, "r", 5);
	message_end(&w);
	cr_assert_eq(message_finish(&w), 0);
	map = message_map(&w, &bytes);
	cr_assert_eq(bytes, sizeof(result) - 1);
	cr_expect_arr_eq(map, result, bytes);
}

Test(message_write, goes_on_from_a_mark_with_another_end)
{
	struct message_mark mark;

	message_request(&w, 7, "ping");
	message_put_u64(&w, "a", 1);
	mark = message_mark(&w);
	message_put_u64(&w, "wait_ms", 1000);
	message_put_u64(&w, "more", 2);
	message_end(&w);
	message_rewind(&w, mark);
	message_put_u64(&w, "b", 2);
	message_end(&w);
	cr_expect_eq(w.id, 7);
	WRITTEN("\x94\x00\x07\xa4ping\x91\xdf\x00\x00\x00\x02\xa1"
		"a\x01\xa1"
		"b\x02");
}

Test(message_write, a_response_in_bytes)
{
	message_response(&w, 300);
	message_begin_array(&w, "l");
	message_put_bool(&w, NULL, true);
	message_put_bool(&w, NULL, false);
	message_end(&w);
	message_end(&w);
	WRITTEN("\x94\x01\xcd\x01\x2c\xc0\xdf\x00\x00\x00\x01\xa1l\xdd\x00\x00\x00\x02\xc3\xc2");
}

Test(message_write, a_notification_in_bytes)
{
	message_notification(&w, "lost");
	message_end(&w);
	WRITTEN("\x93\x02\xa4lost\x91\xdf\x00\x00\x00\x00");
}

Test(message_write, all_values_come_back)
{
	const uint8_t id[16] = {1, 2, 0xff};
	uint8_t back[16];
	char text[8];

	message_request(&w, UINT64_MAX, "all");
	message_put_u64(&w, "u", UINT64_MAX);
	message_put_i64(&w, "i", INT64_MIN);
	message_put_bool(&w, "b", true);
	message_put_text(&w, "t", "t\xc3\xa4xt");
	message_put_text(&w, "nil", NULL);
	message_put_hex128(&w, "id", id);
	message_end(&w);
	read_back();
	cr_expect(m.type == MESSAGE_REQUEST && m.has_id && m.id == UINT64_MAX && !strcmp(m.method, "all"));
	cr_expect_eq(fields_u64(&f, "u"), UINT64_MAX);
	cr_expect_eq(fields_i64_or(&f, "i", 0), INT64_MIN);
	cr_expect(fields_bool_or(&f, "b", false));
	fields_text(&f, "t", text, sizeof(text));
	cr_expect_str_eq(text, "t\xc3\xa4xt");
	cr_expect(!fields_have(&f, "nil"));
	fields_hex128(&f, "id", back);
	cr_expect_arr_eq(back, id, 16);
	cr_expect_eq(f.error.code, 0, "%s", f.error.message);
}

Test(message_write, containers_count_their_entries)
{
	const msgpack_object *array;
	uint32_t count;

	message_response(&w, 1);
	message_begin_array(&w, "versions");
	for (uint64_t i = 0; i < 300; i++) {
		message_begin_map(&w, NULL);
		message_put_u64(&w, "n", i);
		message_end(&w);
	}
	message_end(&w);
	message_put_u64(&w, "seq", 9);
	message_end(&w);
	read_back();
	array = fields_array(&f, "versions", &count);
	cr_assert_eq(count, 300);
	cr_expect_eq(fields_u64(&f, "seq"), 9);
	fields_of(&f, &array[299]);
	cr_expect_eq(fields_u64(&f, "n"), 299);
}

Test(message_write, an_error_response)
{
	struct error error;
	uint64_t id = 5;

	error_set(&error, -ENOSPC, "free some", "no room on host");
	message_response_error(&w, &id, &error);
	read_back();
	cr_expect(m.type == MESSAGE_RESPONSE && m.has_id && m.id == 5 && !m.body);
	cr_expect_eq(m.error.code, -ENOSPC);
	cr_expect_str_eq(m.error.message, "no room on host");
	cr_expect_str_eq(m.error.detail, "free some");
}

Test(message_write, an_error_response_without_an_id)
{
	struct error error;

	error_set(&error, -EPROTO, NULL, "unreadable");
	message_response_error(&w, NULL, &error);
	read_back();
	cr_expect(m.type == MESSAGE_RESPONSE && !m.has_id);
	cr_expect_eq(m.error.code, -EPROTO);
}

Test(message_write, an_error_as_a_value)
{
	struct error error;
	char text[32];

	error_set(&error, -EIO, NULL, "died");
	message_notification(&w, "event");
	message_put_error(&w, "error", &error);
	message_end(&w);
	read_back();
	cr_expect(m.type == MESSAGE_NOTIFICATION && !m.has_id);
	fields_of(&f, fields_map(&f, "error"));
	fields_text(&f, "code", text, sizeof(text));
	cr_expect_str_eq(text, "EIO");
	fields_text(&f, "detail", text, sizeof(text));
	cr_expect_str_eq(text, "");
	cr_expect_eq(f.error.code, 0);
}

Test(message_write, a_bare_map)
{
	message_begin_map(&w, NULL);
	message_put_u64(&w, "seq", 3);
	message_end(&w);
	cr_assert_eq(message_finish(&w), 0);
	cr_assert_eq(message_read_body(w.buffer.data, w.buffer.size, &m, &why), 0);
	fields_of(&f, m.body);
	cr_expect_eq(fields_u64(&f, "seq"), 3);
}

Test(message_write, a_bare_array)
{
	message_begin_array(&w, NULL);
	message_put_i64(&w, NULL, -1);
	message_end(&w);
	WRITTEN("\xdd\x00\x00\x00\x01\xff");
}

/* As deep as the reader allows, around `envelope` containers. */
static void nest(unsigned envelope, bool error_inside)
{
	struct error error = {.code = -EIO};

	for (unsigned depth = envelope + 1; depth < MESSAGE_DEPTH_MAX; depth++)
		message_begin_array(&w, depth == envelope + 1 ? "deep" : NULL);
	if (error_inside)
		message_put_error(&w, NULL, &error);
	for (unsigned depth = envelope + 1; depth < MESSAGE_DEPTH_MAX; depth++)
		message_end(&w);
	message_end(&w);
}

Test(message_write, nests_as_deep_as_the_reader)
{
	message_request(&w, 1, "x");
	nest(2, false);
	read_back();
}

Test(message_write, a_response_may_nest_one_deeper)
{
	message_response(&w, 1);
	nest(1, false);
	read_back();
}

Test(message_write, refuses_to_nest_deeper_than_the_reader)
{
	for (int form = 0; form < 4; form++) {
		message_writer_clear(&w);
		init();
		if (form == 0)
			message_request(&w, 1, "x");
		else if (form == 1)
			message_response(&w, 1);
		else
			message_begin_map(&w, NULL);
		if (form == 3)
			nest(0, true);
		else
			nest(form == 0 ? 1 : form == 1 ? 0 : (unsigned)-1, false);
		cr_expect_eq(message_finish(&w), -EINVAL, "%d", form);
	}
}

Test(message_write, a_map_has_at_most_256_entries)
{
	char key[16];

	message_request(&w, 1, "x");
	for (int i = 0; i < 256; i++) {
		snprintf(key, sizeof(key), "%d", i);
		message_put_bool(&w, key, true);
	}
	cr_expect_eq(w.error, 0);
	message_put_bool(&w, "one more", true);
	message_end(&w);
	cr_expect_eq(message_finish(&w), -EINVAL);
}

Test(message_write, refuses_misuse)
{
	for (int form = 0; form < 8; form++) {
		message_writer_clear(&w);
		init();
		if (form != 1 && form != 7)
			message_request(&w, 1, "x");
		if (form == 0)
			message_put_u64(&w, NULL, 1); /* no key in a map */
		else if (form == 1)
			message_put_u64(&w, NULL, 1); /* no map yet */
		else if (form == 2)
			message_begin_array(&w, "left open");
		else if (form == 3)
			message_begin_array(&w, NULL);
		else if (form == 4)
			message_begin_map(&w, NULL);
		else if (form == 5)
			message_request(&w, 2, "y"); /* a second message */
		else if (form == 6)
			message_end(&w);
		else
			message_begin_map(&w, "key");
		message_end(&w);
		cr_expect_eq(message_finish(&w), -EINVAL, "%d", form);
	}
}

Test(message_write, refuses_a_key_in_an_array)
{
	message_request(&w, 1, "x");
	message_begin_array(&w, "a");
	message_put_u64(&w, "key", 1);
	message_end(&w);
	message_end(&w);
	cr_expect_eq(message_finish(&w), -EINVAL);
}

Test(message_write, refuses_what_follows_the_end)
{
	message_response(&w, 1);
	message_end(&w);
	message_put_u64(&w, "late", 1);
	cr_expect_eq(message_finish(&w), -EINVAL);
}

Test(message_write, nothing_written_is_no_message)
{
	cr_expect_eq(message_finish(&w), -EINVAL);
}

Test(message_write, the_limit_is_exact)
{
	static const char text[] = "12345678";

	for (size_t limit = 0; limit < 100; limit++) {
		message_writer_clear(&w);
		message_writer_init(&w, limit);
		message_request(&w, 1, "ping");
		message_put_text(&w, "t", text);
		message_begin_array(&w, "a");
		message_end(&w);
		message_end(&w);
		if (limit < 32)
			cr_expect_eq(message_finish(&w), -EMSGSIZE, "%zu", limit);
		else
			cr_expect_eq(message_finish(&w), 0, "%zu", limit);
		cr_expect_leq(w.buffer.size, limit);
	}
}

Test(message_write, the_first_error_stays)
{
	message_writer_clear(&w);
	message_writer_init(&w, 4);
	message_request(&w, 1, "too long");
	message_put_u64(&w, NULL, 1);
	message_begin_array(&w, NULL);
	message_put_error(&w, NULL, &(struct error){.code = -EIO});
	message_end(&w);
	message_end(&w);
	cr_expect_eq(message_finish(&w), -EMSGSIZE);
}

Test(message_write, survives_every_failing_allocation)
{
	static char text[20000]; /* so large that the buffer grows twice */
	unsigned n = 1;

	memset(text, 'a', sizeof(text) - 1);
	for (;; n++) {
		message_writer_clear(&w);
		init();
		fail_alloc_arm(n);
		message_request(&w, 1, "x");
		message_put_text(&w, "a", text);
		message_put_text(&w, "b", text);
		message_end(&w);
		if (!fail_alloc_disarm())
			break;
		cr_expect_eq(message_finish(&w), -ENOMEM);
	}
	cr_expect_gt(n, 2);
	cr_expect_eq(message_finish(&w), 0);
}

/* ---- memory that is there before ---- */

static char lent[64];

static void write_text(struct message_writer *one, size_t bytes)
{
	static char text[256];

	memset(text, 'a', bytes);
	text[bytes] = '\0';
	message_response(one, 1);
	message_put_text(one, "t", text);
	message_end(one);
}

Test(message_write, borrowed_memory_is_enough_for_what_fits)
{
	struct message_memory memory = {lent, sizeof(lent), false};

	message_writer_borrow(&w, PACKET_BYTES_MAX, &memory);
	fail_alloc_arm(1);
	write_text(&w, 40);
	fail_alloc_disarm();
	cr_expect_eq(message_finish(&w), 0);
	cr_expect_eq(w.buffer.data, (char *)lent);
	message_writer_clear(&w);
	cr_expect_not(memory.lent);
}

Test(message_write, what_borrowed_memory_can_not_hold_moves_out_of_it)
{
	struct message_memory memory = {lent, sizeof(lent), false};
	struct message_writer own;

	message_writer_init(&own, PACKET_BYTES_MAX);
	write_text(&own, 200);
	for (unsigned n = 1; n <= 2; n++) {
		message_writer_borrow(&w, PACKET_BYTES_MAX, &memory);
		fail_alloc_arm(n == 1 ? 1 : 0);
		write_text(&w, 200);
		cr_assert_eq(fail_alloc_disarm(), n == 1);
		cr_expect_eq(message_finish(&w), n == 1 ? -ENOMEM : 0);
		if (n == 1)
			message_writer_clear(&w);
		cr_expect_not(memory.lent);
	}
	cr_assert_eq(w.buffer.size, own.buffer.size);
	cr_expect_eq(memcmp(w.buffer.data, own.buffer.data, own.buffer.size), 0);
	message_writer_clear(&own);
}

Test(message_write, memory_is_lent_to_one_writer_at_a_time)
{
	struct message_memory memory = {lent, sizeof(lent), false};
	struct message_writer second;

	message_writer_borrow(&w, PACKET_BYTES_MAX, &memory);
	message_writer_borrow(&second, PACKET_BYTES_MAX, &memory);
	write_text(&w, 8);
	write_text(&second, 9);
	cr_expect_neq(second.buffer.data, w.buffer.data);
	message_writer_clear(&second);
	cr_expect(memory.lent);
	cr_expect_eq(message_finish(&w), 0);
}
