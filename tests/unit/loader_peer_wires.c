/* A node with two transports: one that only this test has, and UCX. This file's table is linked in place of gpuwm's. */
#include "loader/peer/peer_take.h"
#include "tests/support/loader/fake_peer.h"
#include "tests/support/peer/wire_local.h"

#include <criterion/criterion.h>
#include <stdlib.h>

const struct wire_ops *const wires[] = {&wire_local, &wire_ucx, NULL};

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
	const struct peer_wish wish = {"m@v1", &job};
	struct link *link;

	setenv("UCX_TLS", "tcp", 1);
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

Test(peer_wires, takes_by_the_first_that_both_have)
{
	const struct peer_places places = {.count = 1, .ref = "m@v1", .items = {{"127.0.0.1", peer.port}}};
	struct peer_fetch fetch = {
		.part = &part,
		.offer = &offer,
		.keys = peer.keys,
		.places = &places,
		.threads = 2,
		.pause_ms = 1,
		.stop = &stop,
	};

	peer_fetch_run(&fetch);
	cr_assert_eq(fetch.error.code, 0, "%s", fetch.error.message);
	cr_expect_eq(fetch.failures, 0, "%s", fetch.last.message);
	expect_all("this process");
}

/* As a taker does that has UCX alone, and does not name it. */
Test(peer_wires, serves_by_the_one_that_the_taker_has)
{
	struct wire *wire = NULL;
	const struct peer_taking taking = {
		.part = &part,
		.version = &offer.version,
		.stay = true,
		.threads = 2,
		.stall_ms = PEER_STALL_MS,
		.stop = &stop,
		.wire = &wire,
		.ops = &wire_ucx,
	};
	struct peer_elsewhere elsewhere;
	struct link *link = fake_peer_connect(&peer);
	struct version_id version;

	cr_assert_eq(peer_offer_find(link, &offer, "m@v1", &version, &error), 0, "%s", error.message);
	cr_assert_eq(peer_take(link, &taking, &elsewhere, &error), 0, "%s", error.message);
	link_close(link);
	expect_all("UCX");
}
