/* Messages between two wires of this process: through UCX, and through a transport that only tests have. What every transport must do is a
 * function, which FOR_EACH makes a test of each. */
#include "base/clock.h"
#include "peer/sender.h"
#include "peer/wire.h"
#include "tests/support/peer/wire_local.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define BYTES (4 << 20)
#define SOON_MS 10000

static struct wire *sender, *receiver;
static uint8_t *from, *to;
static struct error error;

static void begin_with(const struct wire_ops *ops)
{
	size_t bytes;
	const void *address;

	from = malloc(BYTES);
	to = calloc(1, BYTES);
	for (size_t i = 0; i < BYTES; i++)
		from[i] = (uint8_t)(i * 7 + i / 256);
	cr_assert_eq(wire_open(ops, &sender, &error), 0, "%s", error.message);
	cr_assert_eq(wire_open(ops, &receiver, &error), 0, "%s", error.message);
	address = wire_address(receiver, &bytes);
	cr_assert_eq(wire_connect(sender, address, bytes, &error), 0, "%s", error.message);
	address = wire_address(sender, &bytes);
	cr_assert_eq(wire_connect(receiver, address, bytes, &error), 0, "%s", error.message);
}

static void end(void)
{
	wire_close(sender);
	wire_close(receiver);
	free(from);
	free(to);
}

static void begin(void)
{
	begin_with(&wire_ucx);
}

static void begin_over_tcp(void)
{
	setenv("UCX_TLS", "tcp", 1);
	begin();
}

static void begin_locally(void)
{
	begin_with(&wire_local);
}

TestSuite(wire, .init = begin, .fini = end, .timeout = 60);
TestSuite(wire_tcp, .init = begin_over_tcp, .fini = end, .timeout = 60);
TestSuite(wire_local, .init = begin_locally, .fini = end, .timeout = 60);

#define FOR_ONE(suite, name)                                                                                   \
	Test(suite, name)                                                                                      \
	{                                                                                                      \
		name();                                                                                        \
	}
#define FOR_EACH(name)                                                                                         \
	FOR_ONE(wire, name)                                                                                    \
	FOR_ONE(wire_tcp, name)                                                                                \
	FOR_ONE(wire_local, name)

static void begin_send(uint64_t tag, size_t bytes, struct wire_message *message)
{
	const struct wire_piece piece = {tag, from, bytes, WIRE_HOST};

	cr_assert_eq(wire_send(sender, &piece, message, &error), 0, "%s", error.message);
}

static void begin_receive_at(uint8_t *place, uint64_t tag, size_t bytes, struct wire_message *message)
{
	const struct wire_piece piece = {tag, place, bytes, WIRE_HOST};

	cr_assert_eq(wire_receive(receiver, &piece, message, &error), 0, "%s", error.message);
}

static void begin_receive(uint64_t tag, size_t bytes, struct wire_message *message)
{
	begin_receive_at(to, tag, bytes, message);
}

/* Lets both sides work until the message is done. */
static void wait_for(const struct wire_message *message)
{
	int64_t deadline = clock_deadline(SOON_MS);

	while (!message->done) {
		cr_assert_gt(clock_left(deadline), 0, "the message did not come");
		cr_assert_geq(wire_progress(sender, -1, clock_deadline(1), &error), 0, "%s", error.message);
		cr_assert_geq(wire_progress(receiver, -1, clock_deadline(1), &error), 0, "%s", error.message);
	}
}

static void carries_a_piece(void)
{
	static struct wire_message sent, received;

	begin_receive(wire_tag(5, 1), BYTES, &received);
	begin_send(wire_tag(5, 1), BYTES, &sent);
	wait_for(&received);
	wait_for(&sent);
	cr_expect_eq(sent.result, 0);
	cr_expect_eq(received.result, 0);
	cr_expect_arr_eq(from, to, BYTES);
}

FOR_EACH(carries_a_piece)

static void carries_registered_memory(void)
{
	wire_register(sender, from, BYTES, WIRE_HOST);
	wire_register(receiver, to, BYTES, WIRE_HOST);
	carries_a_piece();
}

FOR_EACH(carries_registered_memory)

/* The message begins in it, and ends behind it. */
static void carries_memory_of_which_a_part_is_registered(void)
{
	wire_register(sender, from, BYTES / 2, WIRE_HOST);
	wire_register(receiver, to, BYTES / 2, WIRE_HOST);
	carries_a_piece();
}

FOR_EACH(carries_memory_of_which_a_part_is_registered)

static void carries_many_in_any_order(void)
{
	static struct wire_message sent[8], received[8];

	for (uint32_t i = 0; i < 8; i++)
		begin_receive(wire_tag(1, i), BYTES, &received[i]);
	for (uint32_t i = 8; i-- > 0;)
		begin_send(wire_tag(1, i), BYTES, &sent[i]);
	for (int i = 0; i < 8; i++) {
		wait_for(&received[i]);
		cr_expect_eq(received[i].result, 0);
	}
}

FOR_EACH(carries_many_in_any_order)

static void delivers_nothing_with_another_tag(void)
{
	static struct wire_message sent, received; /* they live as long as the wires */
	static struct wire_message next_sent, next;

	from[0] = 1;
	begin_receive(wire_tag(1, 0), 100, &received);
	begin_send(wire_tag(2, 0), 100, &sent);
	begin_receive_at(to + 100, wire_tag(3, 0), 100, &next);
	begin_send(wire_tag(3, 0), 100, &next_sent);
	wait_for(&next); /* a wire keeps the order */
	cr_expect_not(received.done);
	cr_expect_eq(to[0], 0);
}

FOR_EACH(delivers_nothing_with_another_tag)

static void fails_a_message_that_is_too_large(void)
{
	static struct wire_message sent, received;

	begin_receive(1, BYTES / 2, &received);
	begin_send(1, BYTES, &sent);
	wait_for(&received);
	cr_expect_eq(received.result, -EIO);
	cr_expect_eq(to[BYTES / 2], 0);
}

FOR_EACH(fails_a_message_that_is_too_large)

static void ends_its_wait_when_the_descriptor_can_be_read(void)
{
	int event = eventfd(1, EFD_CLOEXEC);

	cr_expect_eq(wire_progress(receiver, event, clock_deadline(SOON_MS), &error), 0);
	close(event);
}

FOR_EACH(ends_its_wait_when_the_descriptor_can_be_read)

static void ends_its_wait_at_the_deadline(void)
{
	cr_expect_eq(wire_progress(receiver, -1, clock_deadline(30), &error), 0);
}

FOR_EACH(ends_its_wait_at_the_deadline)

/* UCX ends the process if a connection is freed while something is on its way. */
static void leave(struct wire **first, struct wire **second)
{
	static struct wire_message sent[8], received[8];

	for (uint32_t i = 0; i < 8; i++) {
		begin_receive(wire_tag(1, i), BYTES, &received[i]);
		begin_send(wire_tag(1, i), BYTES, &sent[i]);
	}
	for (int i = 0; i < 20; i++) {
		wire_progress(sender, -1, 0, &error);
		wire_progress(receiver, -1, 0, &error);
	}
	cr_expect(wire_settle(*first));
	*first = wire_close(*first);
	cr_expect(wire_settle(*second));
}

static void survives_a_receiver_that_leaves_in_the_middle(void)
{
	leave(&receiver, &sender);
}

FOR_ONE(wire_tcp, survives_a_receiver_that_leaves_in_the_middle)
FOR_ONE(wire_local, survives_a_receiver_that_leaves_in_the_middle)

static void survives_a_sender_that_leaves_in_the_middle(void)
{
	leave(&sender, &receiver);
}

FOR_ONE(wire_tcp, survives_a_sender_that_leaves_in_the_middle)
FOR_ONE(wire_local, survives_a_sender_that_leaves_in_the_middle)

static void *freed;

static void note_free(void *object)
{
	freed = object;
}

static void frees_what_ends_with_it(void)
{
	wire_keep(sender, note_free, from);
	cr_expect_null(freed);
	sender = wire_close(sender);
	cr_expect_eq(freed, from);
}

FOR_EACH(frees_what_ends_with_it)

static void refuses_what_is_no_address(void)
{
	struct wire *third;

	cr_assert_eq(wire_open(sender->ops, &third, &error), 0);
	cr_expect_eq(wire_connect(third, "short", 5, &error), -EBADMSG);
	wire_close(third);
}

FOR_EACH(refuses_what_is_no_address)

static void knows_host_memory(void)
{
	cr_expect(wire_carries(sender, WIRE_HOST));
}

FOR_EACH(knows_host_memory)

static void says_that_the_other_side_is_gone(void)
{
	int64_t deadline = clock_deadline(SOON_MS);
	static struct wire_message received;
	int r = 0;

	begin_receive(wire_tag(1, 0), BYTES, &received);
	sender = wire_close(sender);
	while (r == 0 && !received.done && clock_left(deadline) > 0)
		r = wire_progress(receiver, -1, clock_deadline(1), &error);
	cr_expect_eq(r, -ECONNRESET, "%s", error.message);
}

FOR_ONE(wire_local, says_that_the_other_side_is_gone)

/* ---- which transport ------------------------------------------------------- */

static const struct wire_ops *ops;

Test(wires, are_found_by_their_names)
{
	const char *names[WIRES_MAX];

	cr_assert_eq(wire_names(names), 1);
	cr_expect_str_eq(names[0], "ucx");
	cr_assert_eq(wire_find("ucx", &ops, &error), 0);
	cr_expect_eq(ops, &wire_ucx);
	cr_expect_eq(wire_find("local", &ops, &error), -ENOTSUP);
	cr_expect(strstr(error.message, "sends nothing by \"local\""), "%s", error.message);
}

Test(wires, are_chosen_by_what_both_have)
{
	cr_assert_eq(wire_choose((const char *[]){"local", "ucx"}, 2, &ops, &error), 0);
	cr_expect_eq(ops, &wire_ucx);
	cr_expect_eq(wire_choose((const char *[]){"local"}, 1, &ops, &error), -EPROTONOSUPPORT);
	cr_expect(strstr(error.message, "here is UCX, there local"), "%s", error.message);
	cr_expect_eq(wire_choose((const char *[]){NULL}, 0, &ops, &error), -EPROTONOSUPPORT,
		     "it was built without");
	cr_expect(strstr(error.message, "there none"), "%s", error.message);
}

Test(wires, are_ucx_if_the_other_side_names_none)
{
	cr_assert_eq(wire_choose(NULL, 0, &ops, &error), 0);
	cr_expect_eq(ops, &wire_ucx);
}

Test(sender, writes_addresses_as_text)
{
	const uint8_t address[] = {0, 0xff, 0x10};
	char *text = sender_text(address, sizeof(address));
	void *read;
	size_t bytes;

	cr_expect_str_eq(text, "00ff10");
	cr_assert_eq(sender_address(text, &read, &bytes, &error), 0);
	cr_expect_eq(bytes, sizeof(address));
	cr_expect_arr_eq(read, address, sizeof(address));
	cr_expect_eq(sender_address("0g", &read, &bytes, &error), -EPROTO);
	free(read);
	free(text);
}
