/* Lanes whose other side lies, breaks off or is silent: the test writes the bytes of a lane itself. */
#include "base/clock.h"
#include "peer/exchange.h"
#include "peer/wire.h"
#include "tests/support/peer/lane_port.h"

#include <criterion/criterion.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 1000
#define CANARY 0xa5
#define TAG 7
#define SOON_MS 10000
#define LANES 3

static struct lane_port port;
static struct wire *taker;
static uint8_t memory[3 * BYTES]; /* the piece is its middle */
static struct wire_message message;
static struct error error;

static void begin(void)
{
	const struct wire_piece piece = {TAG, memory + BYTES, BYTES, WIRE_HOST};

	memset(memory, CANARY, sizeof(memory));
	lane_port_begin(&port, false);
	cr_assert_eq(wire_open(&wire_tls, false, &taker, &error), 0, "%s", error.message);
	cr_assert_eq(wire_receive(taker, &piece, &message, &error), 0, "%s", error.message);
}

static void end(void)
{
	wire_close(taker);
	lane_port_end(&port);
}

TestSuite(lanes, .fini = end, .timeout = 60);

static int meet(unsigned lanes, int64_t ms)
{
	static const uint8_t secret[32];
	const struct wire_meeting takes = {.address = secret,
					   .bytes = sizeof(secret),
					   .keys = port.keys,
					   .target = &port.target,
					   .lanes = lanes};

	return wire_meet(taker, &takes, clock_deadline(ms), &error);
}

/* ---- the server, by hand ---- */

static void answer(struct link *link, const struct message_form *form, const void *result,
		   const struct error *why)
{
	struct peer_message request;
	struct message_writer w;
	struct error unused;

	if (peer_receive(link, PEER_HELLO_BYTES_MAX, LINK_SILENCE_MS, &request, &unused) < 0)
		return;
	message_writer_init(&w, PEER_MESSAGE_BYTES_MAX);
	if (why) {
		message_response_error(&w, &request.message.id, why);
	} else {
		message_response(&w, request.message.id);
		record_put(&w, form->result, result);
		message_end(&w);
	}
	peer_send(link, &w, &unused);
	peer_message_clear(&request);
}

static void hello(struct link *link)
{
	answer(link, &form_peer_hello,
	       &(struct peer_hello_result){.protocol = PEER_PROTOCOL_MAX, .node = "test", .program = "test"},
	       NULL);
}

static void open_lane(struct link *link)
{
	hello(link);
	answer(link, &form_peer_lane, &(struct peer_lane_result){0}, NULL);
}

static void refuse_lane(struct link *link)
{
	static const struct error full = {.code = -EBUSY, .message = "this node serves enough"};

	hello(link);
	answer(link, &form_peer_lane, NULL, &full);
}

static void send_header(struct link *link, uint64_t tag, uint64_t offset, uint64_t bytes)
{
	const uint64_t header[] = {htole64(tag), htole64(offset), htole64(bytes)};
	struct error unused;

	link_write(link, header, sizeof(header), LINK_SILENCE_MS, &unused);
}

static void send_bytes(struct link *link, size_t bytes)
{
	static const uint8_t zeros[2 * BYTES];
	struct error unused;

	link_write(link, zeros, bytes, LINK_SILENCE_MS, &unused);
}

/* Returns when the taker has ended the lane. */
static void wait_for_end(struct link *link)
{
	struct error unused;
	uint8_t byte;

	link_read(link, &byte, 1, LINK_SILENCE_MS, &unused);
}

/* ---- chunks ---- */

static uint64_t chunk[3]; /* tag, offset and bytes, with which the lane begins */

static void send_chunk(struct link *link, unsigned number)
{
	(void)number;
	open_lane(link);
	send_header(link, chunk[0], chunk[1], chunk[2]);
	send_bytes(link, 2 * BYTES);
	wait_for_end(link);
}

static int until_it_fails(void)
{
	const int64_t deadline = clock_deadline(SOON_MS);
	int r = 0;

	while (r >= 0 && clock_left(deadline) > 0)
		r = wire_progress(taker, -1, clock_deadline(1), &error);
	return r;
}

/* The chunk ends the wire, and nothing is written. */
static void expect_refused(uint64_t tag, uint64_t offset, uint64_t bytes)
{
	chunk[0] = tag;
	chunk[1] = offset;
	chunk[2] = bytes;
	port.instead = send_chunk;
	begin();
	cr_assert_geq(meet(1, SOON_MS), -EPROTO);
	cr_expect_eq(until_it_fails(), -EPROTO, "%s", error.message);
	cr_expect(strstr(error.message, "that were not wanted"), "%s", error.message);
	cr_expect(wire_settle(taker));
	cr_expect(message.done);
	cr_expect_lt(message.result, 0);
	for (size_t i = 0; i < sizeof(memory); i++)
		cr_assert_eq(memory[i], CANARY, "byte %zu", i);
}

#define REFUSED(name, tag, offset, bytes)                                                                      \
	Test(lanes, refuse_a_chunk_##name)                                                                     \
	{                                                                                                      \
		expect_refused(tag, offset, bytes);                                                            \
	}

REFUSED(that_begins_behind_its_message, TAG, BYTES, 1)
REFUSED(that_ends_behind_its_message, TAG, BYTES - 1, 2)
REFUSED(larger_than_its_message, TAG, 0, BYTES + 1)
REFUSED(at_an_offset_that_overflows, TAG, UINT64_MAX, 2)
REFUSED(of_a_size_that_overflows, TAG, 1, UINT64_MAX)
REFUSED(of_no_bytes, TAG, 0, 0)
REFUSED(of_a_message_that_nobody_wanted, TAG + 1, 0, 1)

static void send_twice(struct link *link, unsigned number)
{
	(void)number;
	open_lane(link);
	for (int i = 0; i < 2; i++) {
		send_header(link, TAG, 0, BYTES - 1);
		send_bytes(link, BYTES - 1);
	}
	wait_for_end(link);
}

Test(lanes, refuse_a_chunk_that_came_before)
{
	port.instead = send_twice;
	begin();
	cr_assert_geq(meet(1, SOON_MS), -EPROTO);
	cr_expect_eq(until_it_fails(), -EPROTO, "%s", error.message);
	cr_expect(wire_settle(taker));
	cr_expect_lt(message.result, 0);
	cr_expect_eq(memory[2 * BYTES], CANARY);
}

static void break_off(struct link *link, unsigned number)
{
	(void)number;
	open_lane(link);
	send_header(link, TAG, 0, BYTES);
	send_bytes(link, BYTES / 2);
}

Test(lanes, that_break_off_in_a_chunk_fail_its_message)
{
	port.instead = break_off;
	begin();
	cr_assert_geq(meet(1, SOON_MS), -ECONNRESET);
	cr_expect_eq(until_it_fails(), -ECONNRESET, "%s", error.message);
	cr_expect(wire_settle(taker));
	cr_expect(message.done);
	cr_expect_eq(message.result, -ECONNRESET);
}

/* ---- lanes that do not open ---- */

static void refuse(struct link *link, unsigned number)
{
	(void)number;
	refuse_lane(link);
}

Test(lanes, that_are_all_refused_end_the_wire_with_the_reason)
{
	port.instead = refuse;
	begin();
	cr_expect_eq(meet(LANES, SOON_MS), -EBUSY, "%s", error.message);
	cr_expect(strstr(error.message, "this node serves enough"), "%s", error.message);
}

static void open_the_last(struct link *link, unsigned number)
{
	if (number < LANES - 1) {
		refuse_lane(link);
		return;
	}
	open_lane(link);
	send_header(link, TAG, 0, BYTES);
	send_bytes(link, BYTES);
	wait_for_end(link);
}

Test(lanes, that_are_refused_do_not_matter_beside_one_that_opens)
{
	port.instead = open_the_last;
	begin();
	cr_assert_eq(meet(LANES, SOON_MS), 0, "%s", error.message);
	for (const int64_t deadline = clock_deadline(SOON_MS); !message.done && clock_left(deadline) > 0;)
		cr_assert_geq(wire_progress(taker, -1, clock_deadline(1), &error), 0, "%s", error.message);
	cr_expect(message.done);
	cr_expect_eq(message.result, 0);
	cr_expect_eq(memory[BYTES], 0);
	cr_expect_eq(memory[BYTES - 1], CANARY);
	cr_expect_eq(memory[2 * BYTES], CANARY);
}

/* A handshake ends by its own time limit. */
Test(lanes, that_still_connect_hold_the_end_up_for_a_handshake_at_most)
{
	uint64_t begin_ms;

	port.silent = true;
	begin();
	cr_assert_eq(meet(LANES, 100), 1);
	begin_ms = clock_steady_ms();
	cr_expect(wire_settle(taker));
	cr_expect_lt(clock_steady_ms() - begin_ms, 2 * LINK_HANDSHAKE_MS);
	cr_expect(message.done);
}

static void say_nothing(struct link *link, unsigned number)
{
	struct peer_message request;
	struct error unused;

	(void)number;
	hello(link);
	if (peer_receive(link, PEER_MESSAGE_BYTES_MAX, LINK_SILENCE_MS, &request, &unused) == 0)
		peer_message_clear(&request);
	wait_for_end(link);
}

/* The request for a lane is not answered. */
Test(lanes, that_wait_for_an_answer_do_not_hold_the_end_up)
{
	uint64_t begin_ms;

	port.instead = say_nothing;
	begin();
	cr_assert_eq(meet(LANES, 1000), 1);
	begin_ms = clock_steady_ms();
	cr_expect(wire_settle(taker));
	cr_expect_lt(clock_steady_ms() - begin_ms, LINK_SILENCE_MS / 2);
	cr_expect(message.done);
}
