/* Messages between two wires of this process: through UCX, over TLS, and through a transport that only tests have. What every transport must do is a
 * function, which FOR_EACH makes a test of each. */
#include "base/clock.h"
#include "peer/exchange.h"
#include "peer/sender.h"
#include "peer/wire.h"
#include "tests/support/peer/lane_port.h"
#include "tests/support/peer/wire_local.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define BYTES (4 << 20)
#define SOON_MS 10000
#define FDS_MAX 256 /* of this process */

static struct wire *sender, *receiver;
static uint8_t *from, *to;
static struct error error;

static struct lane_port port;
static bool clear; /* the taker allows it */

/* Both sides are one thread, which lets each do what it can. */
static int meet(void)
{
	struct wire_meeting sends = {.nonce = 77};
	struct wire_meeting takes = {
		.nonce = 77, .keys = port.keys, .target = &port.target, .lanes = 3, .clear = clear};
	int64_t deadline = clock_deadline(SOON_MS);
	int r = 1, s = 1;

	sends.address = wire_address(receiver, &sends.bytes);
	takes.address = wire_address(sender, &takes.bytes);
	while (r >= 0 && s >= 0 && r + s > 0 && clock_left(deadline) > 0) {
		s = s == 1 ? wire_meet(sender, &sends, clock_deadline(1), &error) : s;
		r = r == 1 ? wire_meet(receiver, &takes, clock_deadline(1), &error) : r;
	}
	return s < 0 ? s : r;
}

static void begin_with(const struct wire_ops *ops)
{
	from = malloc(BYTES);
	to = calloc(1, BYTES);
	for (size_t i = 0; i < BYTES; i++)
		from[i] = (uint8_t)(i * 7 + i / 256);
	cr_assert_eq(wire_open(ops, true, &sender, &error), 0, "%s", error.message);
	cr_assert_eq(wire_open(ops, false, &receiver, &error), 0, "%s", error.message);
	cr_assert_eq(meet(), 0, "%s", error.message);
}

static void end(void)
{
	wire_close(sender);
	wire_close(receiver);
	if (port.keys)
		lane_port_end(&port);
	free(from);
	free(to);
}

static void begin_over_tls(void)
{
	lane_port_begin(&port, false);
	begin_with(&wire_tls);
}

static void begin_in_clear(void)
{
	clear = true;
	lane_port_begin(&port, true);
	begin_with(&wire_tls);
}

static void begin_locally(void)
{
	begin_with(&wire_local);
}

TestSuite(wire_tls, .init = begin_over_tls, .fini = end, .timeout = 60);
TestSuite(wire_clear, .init = begin_in_clear, .fini = end, .timeout = 60);
TestSuite(wire_local, .init = begin_locally, .fini = end, .timeout = 60);

#ifdef GPUWM_UCX
/* Without a GPU: by shared memory. */
static void begin_with_ucx(void)
{
	begin_with(&wire_gpus);
}

TestSuite(wire_ucx, .init = begin_with_ucx, .fini = end, .timeout = 60);
#define FOR_UCX(name) FOR_ONE(wire_ucx, name)
#else
#define FOR_UCX(name)
#endif

#define FOR_ONE(suite, name)                                                                                   \
	Test(suite, name)                                                                                      \
	{                                                                                                      \
		name();                                                                                        \
	}
#define FOR_EACH(name)                                                                                         \
	FOR_UCX(name)                                                                                          \
	FOR_ONE(wire_tls, name)                                                                                \
	FOR_ONE(wire_clear, name)                                                                              \
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

FOR_UCX(delivers_nothing_with_another_tag)
FOR_ONE(wire_local, delivers_nothing_with_another_tag)

static void fails_a_message_that_is_too_large(void)
{
	static struct wire_message sent, received;

	begin_receive(1, BYTES / 2, &received);
	begin_send(1, BYTES, &sent);
	wait_for(&received);
	cr_expect_eq(received.result, -EIO);
	cr_expect_eq(to[BYTES / 2], 0);
}

FOR_UCX(fails_a_message_that_is_too_large)
FOR_ONE(wire_local, fails_a_message_that_is_too_large)

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

FOR_ONE(wire_tls, survives_a_receiver_that_leaves_in_the_middle)
FOR_ONE(wire_local, survives_a_receiver_that_leaves_in_the_middle)

static void survives_a_sender_that_leaves_in_the_middle(void)
{
	leave(&sender, &receiver);
}

FOR_ONE(wire_tls, survives_a_sender_that_leaves_in_the_middle)
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
	const struct wire_meeting meeting = {
		.address = "short", .bytes = 5, .keys = port.keys, .target = &port.target, .lanes = 1};
	struct wire *third;
	int r;

	/* UCX's taker connects when it has heard of the server. */
	cr_assert_eq(wire_open(sender->ops, sender->ops->of_one_machine, &third, &error), 0);
	r = wire_meet(third, &meeting, 0, &error);
	cr_expect_eq(r, -EBADMSG);
	wire_close(third);
}

FOR_EACH(refuses_what_is_no_address)

#ifdef GPUWM_UCX
static bool listens(int fd)
{
	int accepts = 0;
	socklen_t bytes = sizeof(accepts);

	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &bytes) == 0 && accepts;
}

/* Whoever connects to a port of UCX's is believed, and every user of this machine may. So there is none, also if the environment wants one. */
Test(wires_of_ucx, open_no_port)
{
	setenv("UCX_TLS", "all", 1);
	begin_with_ucx();
	for (int fd = 0; fd < FDS_MAX; fd++)
		cr_expect(!listens(fd), "%d", fd);
	end();
}
#endif

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

/* ---- lanes of TLS ---------------------------------------------------------- */

FOR_ONE(wire_tls, says_that_the_other_side_is_gone)

/* The server may send only what was wanted. */
static void ends_if_something_else_comes(void)
{
	static struct wire_message sent;
	int64_t deadline = clock_deadline(SOON_MS);
	int r = 0;

	begin_send(wire_tag(2, 0), 100, &sent);
	while (r == 0 && clock_left(deadline) > 0)
		r = wire_progress(receiver, -1, clock_deadline(1), &error);
	cr_expect_eq(r, -EPROTO);
	cr_expect(strstr(error.message, "sent 100 bytes that were not wanted"), "%s", error.message);
}

FOR_ONE(wire_tls, ends_if_something_else_comes)

static void ends_if_more_comes_than_was_wanted(void)
{
	static struct wire_message sent, received;
	int64_t deadline = clock_deadline(SOON_MS);
	int r = 0;

	begin_receive(1, BYTES / 2 + 100, &received);
	begin_send(1, BYTES, &sent);
	while (r >= 0 && clock_left(deadline) > 0)
		r = wire_progress(receiver, -1, clock_deadline(1), &error);
	cr_expect_eq(r, -EPROTO);
	cr_expect_eq(to[BYTES / 2 + 100], 0);
}

FOR_ONE(wire_tls, ends_if_more_comes_than_was_wanted)

/* The secret is the only way to a take, and a take that has ended has none. */
Test(wire_lanes, need_the_secret)
{
	uint8_t secret[32] = {1};
	struct wire_meeting takes = {.address = secret, .bytes = sizeof(secret), .lanes = 2};
	int r = 1;

	lane_port_begin(&port, false);
	takes.keys = port.keys;
	takes.target = &port.target;
	cr_assert_eq(wire_open(&wire_tls, true, &sender, &error), 0);
	cr_assert_eq(wire_open(&wire_tls, false, &receiver, &error), 0);
	r = wire_meet(receiver, &takes, clock_deadline(SOON_MS), &error);
	cr_expect_eq(r, -ECONNRESET, "-ENOENT would say that the node does not have the version");
	cr_expect(strstr(error.message, "no take has this secret"), "%s", error.message);
	end();
}

/* Asks the port for a lane of a wire, as a node does that knows the wire's address. Returns what the port answered. The caller closes the link. */
static int ask_for_lane(const struct wire *wire, struct link **ret)
{
	struct peer_hello_result hello;
	struct peer_lane_result lane;
	struct peer_message message;
	size_t bytes;
	const void *address = wire_address(wire, &bytes);
	char *secret = wire_text(address, bytes);
	int r = link_connect(port.keys, &port.target, LINK_HANDSHAKE_MS, ret, &error);

	cr_assert_eq(r, 0, "%s", error.message);
	cr_assert_eq(peer_greet(*ret, "test", &hello, &message, &error), 0, "%s", error.message);
	peer_message_clear(&message);
	r = peer_call(*ret, &form_peer_lane, &(struct peer_lane_params){.secret = secret}, &lane, &message,
		      &error);
	if (r == 0)
		peer_message_clear(&message);
	free(secret);
	return r;
}

/* A loader takes and serves in one process, and tells the server its address. With a lane of the taker's wire the server would get what is in the
 * memory that it is to fill, and the piece would count as received. */
Test(wire_lanes, of_a_taker_are_given_to_nobody)
{
	struct link *link;

	lane_port_begin(&port, false);
	begin_with(&wire_tls);
	cr_expect_eq(ask_for_lane(receiver, &link), -ENOENT);
	link_close(link);
	carries_a_piece();
	end();
}

/* The taker has three. */
Test(wire_lanes, are_8_of_a_take_at_most)
{
	struct link *links[6];

	lane_port_begin(&port, false);
	begin_with(&wire_tls);
	carries_a_piece(); /* all three have asked, or come later than these */
	for (int i = 0; i < 6; i++) {
		int r = ask_for_lane(sender, &links[i]);

		cr_expect(r == 0 || r == -ENOENT);
		cr_expect(i < 5 || r == -ENOENT);
	}
	cr_expect(wire_settle(sender), "lanes that nobody reads do not hold it up");
	for (int i = 0; i < 6; i++)
		link_close(links[i]);
	end();
}

Test(wire_lanes, are_encrypted_unless_both_sides_say_no)
{
	clear = true;
	lane_port_begin(&port, false);
	begin_with(&wire_tls);
	carries_a_piece();
	end();
}

/* ---- which transport ------------------------------------------------------- */

Test(wires, are_found_by_their_names)
{
	const struct wire_ops *ops;

	cr_assert_eq(wire_find("tls", &ops, &error), 0);
	cr_expect_eq(ops, &wire_tls);
	cr_expect_eq(wire_find("local", &ops, &error), -ENOTSUP);
	cr_expect(strstr(error.message, "sends nothing by \"local\""), "%s", error.message);
}

/* A machine that tests run on may have a card, or a GPU. */
Test(wires, say_what_they_need)
{
	for (size_t i = 0; wires[i]; i++) {
		error = (struct error){0};
		if (wires[i]->here && wires[i]->here(&error) < 0)
			cr_expect(error.code == -ENOTSUP && error.message[0], "%s", wires[i]->name);
	}
	cr_expect_null(wire_tls.here);
}

Test(wires, write_addresses_as_text)
{
	const uint8_t address[] = {0, 0xff, 0x10};
	char *text = wire_text(address, sizeof(address));
	void *read;
	size_t bytes;

	cr_expect_str_eq(text, "00ff10");
	cr_assert_eq(wire_bytes(text, &read, &bytes, &error), 0);
	cr_expect_eq(bytes, sizeof(address));
	cr_expect_arr_eq(read, address, sizeof(address));
	free(read);
	cr_expect_eq(wire_bytes("0g", &read, &bytes, &error), -EPROTO);
	cr_expect_eq(wire_bytes("00f", &read, &bytes, &error), -EPROTO);
	free(text);
}
