/* A node with two transports: one that only this test has, and TLS. This file's table is linked in place of gpuwm's. */
#include "loader/peer/peer_take.h"
#include "peer/exchange.h"
#include "tests/support/loader/fake_peer.h"
#include "tests/support/peer/wire_local.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#define FAKE_PIECES 4 /* of both segments */
#define LATE_LOOKS 100 /* one each ms */

static struct wire_ops first; /* wire_local, or what a test makes of it */
const struct wire_ops *const wires[] = {&first, &wire_tls, NULL};

static struct fake_peer peer;
static struct peer_offer offer;
static struct taken_part part;
static atomic_bool stop;
static struct error error;

static int nothing(uint64_t bytes, void *user_data)
{
	(void)bytes;
	(void)user_data;
	return 0;
}

static int look(void *user_data)
{
	(void)user_data;
	return 0;
}

static void begin(void)
{
	static const char *const devices[] = {"host"};
	static const struct job_load_params job = {
		.wish = {.source = "peer://127.0.0.1/m@v1", .devices = {devices, 1}}};
	const struct peer_wish wish = {.ref = "m@v1", .params = &job};
	struct link *link;

	first = wire_local;
	fake_peer_begin(&peer);
	link = fake_peer_connect(&peer);
	cr_assert_eq(peer_offer_take(link, &wish, look, NULL, &offer, &error), 0, "%s", error.message);
	link_close(link);
	part = (struct taken_part){.offer = &offer.parts[0], .id = "host", .world = 1, .index = -1};
	cr_assert_eq(memory_device_open("host", &part.device, &error), 0);
	cr_assert_eq(peer_part_make(&part, nothing, NULL, &error), 0, "%s", error.message);
}

static void end(void)
{
	peer_part_end(&part);
	peer_offer_clear(&offer);
	fake_peer_end(&peer);
}

TestSuite(peer_wires, .init = begin, .fini = end, .timeout = 60);

static void expect_all(const char *by)
{
	cr_expect_arr_eq(part.segments[0].address, fake_peer_bytes(0), FAKE_BYTES);
	cr_expect_arr_eq(part.segments[1].address, fake_peer_bytes(1), FAKE_TAIL);
	cr_expect_str_eq(part.times.wire, by);
}

static struct peer_fetch fetch;

static void run_fetch(void)
{
	static struct peer_places places = {.count = 1, .ref = "m@v1", .items = {{"127.0.0.1", 0}}};

	places.items[0].port = peer.port;
	fetch = (struct peer_fetch){
		.part = &part,
		.offer = &offer,
		.keys = peer.keys,
		.places = &places,
		.threads = 2,
		.lanes = 2,
		.pause_ms = 1,
		.stop = &stop,
	};
	peer_fetch_run(&fetch);
	cr_assert_eq(fetch.error.code, 0, "%s", fetch.error.message);
	cr_expect_eq(fetch.failures, 0, "%s", fetch.last.message);
}

Test(peer_wires, takes_by_the_first_that_both_have)
{
	run_fetch();
	expect_all("this process");
	cr_expect_str_eq(fetch.way.better, "");
}

static int not_here(struct error *why)
{
	return error_set(why, -ENOTSUP, "buy one", "no card is here");
}

Test(peer_wires, say_what_would_have_been_better)
{
	first.here = not_here;
	run_fetch();
	expect_all("TLS");
	cr_expect_str_eq(fetch.way.better, "not by this process: no card is here: buy one");
}

static int out_of_reach(struct wire *wire, const struct wire_meeting *meeting, struct error *why)
{
	(void)wire;
	(void)meeting;
	return error_set(why, -EHOSTUNREACH, NULL, "nothing joins the two");
}

Test(peer_wires, are_tried_until_one_joins_the_two)
{
	first.meet = out_of_reach;
	run_fetch();
	expect_all("TLS");
	cr_expect(strstr(fetch.way.better, "not by this process: "), "%s", fetch.way.better);
	cr_expect(strstr(fetch.way.better, "nothing joins the two"), "%s", fetch.way.better);
}

static int can_not_open(struct wire **ret, struct error *why)
{
	(void)ret;
	return error_set(why, -ENOTSUP, NULL, "its library is too old");
}

Test(peer_wires, are_tried_until_one_can_be_opened)
{
	first.open = can_not_open;
	run_fetch();
	expect_all("TLS");
	cr_expect_str_eq(fetch.way.better, "not by this process: its library is too old");
}

static atomic_uint wanted,
	looked; /* pieces that the taker waits for; looks of the server since it could have heard of all */

static int note_wanted(struct wire *wire, const struct wire_piece *piece, struct wire_message *message,
		       struct error *why)
{
	atomic_fetch_add(&wanted, 1);
	return wire_local.receive(wire, piece, message, why);
}

/* The taker's side is open long before the server's. */
static int meet_late(struct wire *wire, const struct wire_meeting *meeting, struct error *why)
{
	int r = wire_local.meet(wire, meeting, why);

	if (r < 0 || !wire->serves)
		return r;
	if (atomic_load(&wanted) < FAKE_PIECES || atomic_fetch_add(&looked, 1) < LATE_LOOKS)
		return 1;
	return 0;
}

/* It hears all that the taker wants while it waits for the transport. */
Test(peer_wires, may_be_open_at_the_server_last)
{
	first.receive = note_wanted;
	first.meet = meet_late;
	run_fetch();
	expect_all("this process");
}

Test(peer_wires, are_left_if_they_are_slow)
{
	first.rate_min = UINT64_MAX;
	first.judged_bytes = 1;
	run_fetch();
	expect_all("TLS");
	cr_expect(strstr(fetch.way.better, "not by this process: it brought "), "%s", fetch.way.better);
}

/* This machine's GPUs are not meant if the bytes go into host memory. */
Test(peer_wires, of_gpus_do_not_bring_host_memory)
{
	first.of_one_machine = true;
	run_fetch();
	expect_all("TLS");
	cr_expect_str_eq(fetch.way.better, "");
}

/* The next request on the same connection is answered: only this take has ended. */
Test(peer_wires, that_a_server_lacks_are_refused_to_whoever_asks)
{
	struct peer_found found;
	struct peer_take_result result;
	struct peer_message message;
	struct link *link = fake_peer_connect(&peer);
	struct peer_take_params params = {
		.version = &found.version, .wire = "local", .worker = "00", .nonce = 1};

	first.here = not_here;
	cr_assert_eq(peer_offer_find(link, &offer, "m@v1", &found, &error), 0, "%s", error.message);
	cr_assert_eq(peer_call(link, &form_peer_take, &params, &result, &message, &error), -ENOTSUP);
	cr_expect(strstr(error.message, "no card is here"), "%s", error.message);
	cr_expect_eq(peer_offer_find(link, &offer, "m@v1", &found, &error), 0, "%s", error.message);
	link_close(link);
}

Test(peer_wires, with_an_address_that_is_none_end_that_take_only)
{
	struct peer_found found;
	struct peer_take_result result;
	struct peer_message message;
	struct link *link = fake_peer_connect(&peer);
	struct peer_take_params params = {
		.version = &found.version, .wire = "tls", .worker = "none", .nonce = 1};

	cr_assert_eq(peer_offer_find(link, &offer, "m@v1", &found, &error), 0, "%s", error.message);
	cr_assert_eq(peer_call(link, &form_peer_take, &params, &result, &message, &error), 0, "%s",
		     error.message);
	peer_message_clear(&message);
	cr_assert_eq(peer_receive(link, PEER_MESSAGE_BYTES_MAX, LINK_SILENCE_MS, &message, &error), 0, "%s",
		     error.message);
	cr_expect_str_eq(message.message.method, "gone");
	peer_message_clear(&message);
	link_close(link);
	run_fetch();
	expect_all("this process");
}

Test(peer_wires, are_told_by_a_server_that_has_what_they_need)
{
	const char *names[WIRES_MAX];

	cr_assert_eq(wire_names(names), 2);
	cr_expect_str_eq(names[0], "local");
	cr_expect_str_eq(names[1], "tls");
	first.here = not_here;
	cr_assert_eq(wire_names(names), 1);
	cr_expect_str_eq(names[0], "tls");
}
