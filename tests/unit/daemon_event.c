#include "daemon/ledger/event.h"
#include "proto/wire/messages.h"

#include <criterion/criterion.h>
#include <string.h>

static struct event_ring *ring;

static void open_ring(void)
{
	ring = event_ring_new();
	cr_assert(ring);
}

static void close_ring(void)
{
	ring = event_ring_free(ring);
	cr_expect_null(event_ring_free(NULL));
}

TestSuite(event, .init = open_ring, .fini = close_ring);

struct value_event {
	uint64_t value;
	const char *text;
};
static const struct record_field value_rows[] = {
	FIELD_U64(struct value_event, value),
	FIELD_TEXT_MAYBE(struct value_event, text, PACKET_BYTES_MAX),
};
static const struct record value_record = {RECORD(struct value_event, value_rows)};
static const struct message_form event_value = {.name = "job", .params = &value_record};

static void emit(uint64_t value)
{
	event_emit(ring, &event_value, &(struct value_event){.value = value}, NULL);
}

/* An event that is too large for a packet. */
static void emit_too_large(void)
{
	static char text[PACKET_BYTES_MAX];

	memset(text, 'x', sizeof(text) - 1);
	event_emit(ring, &event_value, &(struct value_event){.text = text}, NULL);
}

/* The next packet after `after`: its method, and the two numbers that it carries. */
static uint64_t expect_packet(uint64_t after, const char *method, const char *first, uint64_t first_value,
			      const char *second, uint64_t second_value)
{
	const void *data;
	size_t bytes;
	uint64_t seq = 0;
	struct message m;
	struct fields f;
	const char *why = "";

	cr_assert_eq(event_after(ring, after, &data, &bytes, &seq), 1);
	cr_assert_eq(message_read(data, bytes, &m, &why), 0, "%s", why);
	cr_expect_eq(m.type, MESSAGE_NOTIFICATION);
	cr_expect_str_eq(m.method, method);
	fields_of(&f, m.body);
	cr_expect_eq(fields_u64(&f, first), first_value);
	cr_expect_eq(fields_u64(&f, second), second_value);
	cr_expect_eq(f.error.code, 0, "%s", f.error.message);
	message_clear(&m);
	return seq;
}

static bool nothing_after(uint64_t after)
{
	const void *data;
	size_t bytes;
	uint64_t seq;

	return event_after(ring, after, &data, &bytes, &seq) == 0;
}

Test(event, ring_begins_empty)
{
	cr_expect_eq(event_last(ring), 0);
	cr_expect(nothing_after(0));
}

Test(event, carries_number_kind_time_and_its_own_keys)
{
	const void *data;
	size_t bytes;
	uint64_t seq;
	struct message m;
	struct fields f;
	const char *why;
	char kind[32];

	emit(5);
	cr_expect_eq(event_last(ring), 1);
	cr_assert_eq(event_after(ring, 0, &data, &bytes, &seq), 1);
	cr_expect_eq(seq, 1);
	cr_assert_eq(message_read(data, bytes, &m, &why), 0);
	fields_of(&f, m.body);
	fields_text(&f, "kind", kind, sizeof(kind));
	cr_expect_str_eq(kind, "job");
	cr_expect_gt(fields_u64(&f, "time_ms"), 1700000000000);
	cr_expect_eq(fields_u64(&f, "seq"), 1);
	cr_expect_eq(fields_u64(&f, "value"), 5);
	message_clear(&m);
	cr_expect(nothing_after(1));
}

Test(event, all_are_told_in_order)
{
	uint64_t after = 0;

	for (uint64_t i = 1; i <= 100; i++)
		emit(i * 3);
	for (uint64_t i = 1; i <= 100; i++)
		after = expect_packet(after, "event", "seq", i, "value", i * 3);
	cr_expect_eq(after, 100);
	cr_expect(nothing_after(after));
}

Test(event, subscriber_at_the_rings_edge_loses_none)
{
	for (uint64_t i = 1; i <= EVENTS_KEPT_MAX + 5; i++)
		emit(i);
	cr_expect_eq(expect_packet(5, "event", "seq", 6, "value", 6), 6);
}

Test(event, subscriber_behind_the_ring_is_told_what_it_lost)
{
	uint64_t after;

	for (uint64_t i = 1; i <= EVENTS_KEPT_MAX + 5; i++)
		emit(i);
	after = expect_packet(0, "lost", "from", 1, "to", 5);
	cr_expect_eq(after, 5);
	after = expect_packet(after, "event", "seq", 6, "value", 6);
	cr_expect_eq(expect_packet(3, "lost", "from", 4, "to", 5), 5);
}

Test(event, that_could_not_be_kept_is_told_as_lost)
{
	uint64_t after = 1;

	emit(1);
	emit_too_large();
	emit_too_large();
	emit(4);
	after = expect_packet(after, "lost", "from", 2, "to", 3);
	after = expect_packet(after, "event", "seq", 4, "value", 4);
	emit_too_large();
	after = expect_packet(after, "lost", "from", 5, "to", 5);
	cr_expect(nothing_after(after));
}

Test(event, lost_ones_behind_and_in_the_ring_are_one_notice)
{
	emit(1);
	emit_too_large();
	for (uint64_t i = 3; i <= EVENTS_KEPT_MAX + 1; i++)
		emit(i);
	cr_expect_eq(expect_packet(0, "lost", "from", 1, "to", 2), 2);
}

Test(event, number_of_another_daemon_is_told_nothing)
{
	emit(1);
	cr_expect(nothing_after(2));
	cr_expect(nothing_after(UINT64_MAX));
}
