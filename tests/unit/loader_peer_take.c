/* Taking a version from a peer that tells the truth, and from peers that do not. */
#include "loader/peer/peer_take.h"
#include "loader/peer/peer_offer.h"
#include "tests/support/loader/fake_peer.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ANY NULL

static struct fake_peer peer;
static struct peer_offer offer;
static struct taken_part part;
static struct peer_places places;
static struct peer_fetch fetch;
static atomic_bool stop;
static struct wire *wire;
static struct error error;

static void begin_with(enum fake_lie lie)
{
	peer.lie = lie;
	fake_peer_begin(&peer);
}

static void end(void)
{
	peer_part_end(&part);
	peer_offer_clear(&offer);
	if (peer.keys)
		fake_peer_end(&peer);
}

TestSuite(peer_offer, .fini = end, .timeout = 60);
TestSuite(peer_take, .fini = end, .timeout = 60);

static int look(void *user_data)
{
	return user_data ? -ECANCELED : 0;
}

static const char *const devices[] = {"host"};
static const struct job_load_params job = {
	.wish = {.source = "peer://127.0.0.1/m@v1", .devices = {devices, 1}}};

static int ask(const char *ref)
{
	const struct peer_wish wish = {.ref = ref, .params = &job};
	struct link *link = fake_peer_connect(&peer);
	int r = peer_offer_take(link, &wish, look, NULL, &offer, &error);

	link_close(link);
	return r;
}

/* ---- offers ---------------------------------------------------------------- */

Test(peer_offer, has_index_sizes_and_sums)
{
	char text[SUM_TEXT];

	begin_with(LIE_NOTHING);
	cr_assert_eq(ask("m@v1"), 0, "%s", error.message);
	cr_expect_eq(offer.world, 1);
	cr_expect_eq(offer.bytes, FAKE_BYTES + FAKE_TAIL);
	cr_expect_eq(offer.parts[0].segment_count, 2);
	cr_expect_eq(offer.parts[0].first[2], 4);
	cr_expect_eq(offer.parts[0].view.header->tensor_count, 2);
	sum_format(&offer.fingerprint, text);
	cr_expect_eq(peer_offer_expect(&offer, text, "fake", &error), 0);
	cr_expect_eq(peer_offer_expect(&offer, ANY, "fake", &error), 0);
}

Test(peer_offer, is_refused_if_another_fingerprint_was_expected)
{
	char text[SUM_TEXT];

	begin_with(LIE_NOTHING);
	cr_assert_eq(ask("m@v1"), 0);
	sum_format(&offer.fingerprint, text);
	text[0] = text[0] == '0' ? '1' : '0';
	cr_expect_eq(peer_offer_expect(&offer, text, "fake", &error), -EBADMSG);
	cr_expect(strstr(error.message, text));
	cr_expect_eq(peer_offer_expect(&offer, "00", "fake", &error), -EINVAL);
}

Test(peer_offer, is_missing_if_the_peer_has_no_such_version)
{
	begin_with(LIE_NOTHING);
	cr_expect_eq(ask("m@v2"), -ENOENT);
	cr_expect(strstr(error.message, "127.0.0.1"), "%s", error.message);
}

Test(peer_offer, is_cancelled_in_the_middle)
{
	const struct peer_wish wish = {.ref = "m@v1", .params = &job};
	struct link *link;

	begin_with(LIE_NOTHING);
	link = fake_peer_connect(&peer);
	cr_expect_eq(peer_offer_take(link, &wish, look, &peer, &offer, &error), -ECANCELED);
	link_close(link);
}

/* The offer is refused with this code, and the message names the peer and says why. */
static void expect_refusal(enum fake_lie lie, int code, const char *says)
{
	begin_with(lie);
	cr_expect_eq(ask("m@v1"), code, "%s", error.message);
	cr_expect(strstr(error.message, "127.0.0.1"), "%s", error.message);
	cr_expect(strstr(error.message, says), "%s", error.message);
}

Test(peer_offer, is_refused_with_a_damaged_index)
{
	expect_refusal(LIE_INDEX, -EBADMSG, "wrong index of rank 0");
}

Test(peer_offer, is_refused_with_an_index_of_another_rank)
{
	expect_refusal(LIE_RANK, -EBADMSG, "not of 0 of 1");
}

Test(peer_offer, is_refused_if_segments_and_index_differ)
{
	expect_refusal(LIE_SMALLER, -EBADMSG, "more bytes than the peer said");
}

Test(peer_offer, is_refused_if_ranks_are_missing)
{
	expect_refusal(LIE_WORLD, -EBADMSG, "2 ranks, and names 1");
}

Test(peer_offer, is_refused_with_a_segment_that_no_device_holds)
{
	expect_refusal(LIE_HUGE, -EBADMSG, "wrong index of rank 0: it has a segment");
}

Test(peer_offer, is_refused_before_its_sums_if_it_can_not_fit)
{
	expect_refusal(LIE_VAST, -ENOSPC, "offers 64.0 TiB of m@v1 for host, which has ");
	cr_expect(strstr(error.detail, "name a larger device"), "%s", error.detail);
	cr_expect_eq(atomic_load(&peer.details), 0, "neither index nor sums are asked for");
}

Test(peer_offer, is_refused_under_a_name_that_is_none)
{
	expect_refusal(LIE_NAME, -EBADMSG, "names a version by \"@m\"");
}

Test(peer_offer, is_refused_if_sums_are_missing)
{
	expect_refusal(LIE_SUMS_COUNT, -EBADMSG, "sums of 0 pieces");
}

/* ---- pieces ---------------------------------------------------------------- */

static int nothing(uint64_t bytes, void *user_data)
{
	(void)bytes;
	(void)user_data;
	return 0;
}

static void make_part(void)
{
	part = (struct taken_part){.offer = &offer.parts[0], .id = "host", .world = 1, .index = -1};
	cr_assert_eq(memory_device_open("host", &part.device, &error), 0);
	cr_assert_eq(peer_part_make(&part, nothing, NULL, &error), 0, "%s", error.message);
}

/* What is asked for once the peer's offer is here. */
static void begin_take(enum fake_lie lie)
{
	begin_with(lie);
	cr_assert_eq(ask("m@v1"), 0, "%s", error.message);
	make_part();
}

static const char *server = "127.0.0.1"; /* the name by which the take's link found it */

static int take(int64_t stall_ms, bool stay, struct peer_elsewhere *ret)
{
	const struct link_target target = {server, peer.port, NULL};
	const struct peer_taking taking = {
		.part = &part,
		.version = &offer.version,
		.stay = stay,
		.threads = 2,
		.stall_ms = stall_ms,
		.stop = &stop,
		.wire = &wire,
		.ops = &wire_tls,
		.keys = peer.keys,
		.target = &target,
		.lanes = 2,
	};
	struct link *link = fake_peer_connect(&peer);
	struct peer_found found;
	int r = peer_offer_find(link, &offer, "m@v1", &found, &error);

	if (r == 0)
		r = peer_take(link, &taking, ret, &error);
	link_close(link);
	cr_expect(!wire || (r == 0 && ret->there));
	wire = wire_close(wire);
	return r;
}

static void expect_all(void)
{
	cr_expect(peer_pieces_complete(part.pieces));
	cr_expect_arr_eq(part.segments[0].address, fake_peer_bytes(0), FAKE_BYTES);
	cr_expect_arr_eq(part.segments[1].address, fake_peer_bytes(1), FAKE_TAIL);
}

/* The take ends with this code, and the message names the peer. */
static void expect_failure(int64_t stall_ms, int code, const char *says)
{
	struct peer_elsewhere elsewhere;

	cr_expect_eq(take(stall_ms, true, &elsewhere), code, "%s", error.message);
	cr_expect(strstr(error.message, "127.0.0.1"), "%s", error.message);
	cr_expect(strstr(error.message, says), "%s", error.message);
	cr_expect_not(peer_pieces_complete(part.pieces));
}

Test(peer_take, brings_every_byte)
{
	struct peer_elsewhere elsewhere;

	begin_take(LIE_NOTHING);
	cr_assert_eq(take(PEER_STALL_MS, true, &elsewhere), 0, "%s", error.message);
	cr_expect_not(elsewhere.there);
	expect_all();
}

/* The next look at a name may bring the address of another node, or none. */
Test(peer_take, opens_its_lanes_at_the_address_that_its_link_has)
{
	struct peer_elsewhere elsewhere;

	server = "no-such-name.invalid";
	begin_take(LIE_NOTHING);
	cr_assert_eq(take(PEER_STALL_MS, true, &elsewhere), 0, "%s", error.message);
	expect_all();
}

Test(peer_take, asks_again_for_a_piece_that_was_wrong)
{
	struct peer_elsewhere elsewhere;

	begin_take(LIE_BYTES_ONCE);
	cr_assert_eq(take(PEER_STALL_MS, true, &elsewhere), 0, "%s", error.message);
	expect_all();
}

Test(peer_take, gives_a_peer_up_that_has_other_bytes)
{
	begin_take(LIE_BYTES);
	expect_failure(PEER_STALL_MS, -EBADMSG, "did not have their SHA-256");
}

Test(peer_take, gives_a_peer_up_that_has_other_sums)
{
	begin_take(LIE_SUMS);
	expect_failure(PEER_STALL_MS, -EBADMSG, "did not have their SHA-256");
}

Test(peer_take, gives_a_peer_up_that_sends_nothing)
{
	begin_take(LIE_SILENT);
	expect_failure(300, -ETIMEDOUT, "sent nothing for 300 ms");
}

Test(peer_take, ends_when_the_peer_says_that_the_version_is_gone)
{
	begin_take(LIE_GONE);
	expect_failure(PEER_STALL_MS, -ESHUTDOWN, "the node stops");
}

Test(peer_take, ends_with_the_connection)
{
	begin_take(LIE_RESET);
	expect_failure(PEER_STALL_MS, -ECONNRESET, "");
}

Test(peer_take, ends_when_it_is_stopped)
{
	struct peer_elsewhere elsewhere;

	begin_take(LIE_SILENT);
	peer.stops = &stop; /* not before a piece is wanted */
	cr_expect_eq(take(PEER_STALL_MS, true, &elsewhere), -ECANCELED);
}

Test(peer_take, goes_elsewhere_if_it_may)
{
	struct peer_elsewhere elsewhere;

	begin_with(LIE_NOTHING);
	cr_assert_eq(ask("m@v1"), 0);
	make_part();
	peer.lie = LIE_ELSEWHERE;
	cr_assert_eq(take(PEER_STALL_MS, false, &elsewhere), 0, "%s", error.message);
	cr_expect(elsewhere.there);
	cr_expect_str_eq(elsewhere.host, "127.0.0.1");
	cr_expect_eq(elsewhere.port, 1);
}

Test(peer_take, refuses_to_go_elsewhere_if_it_can_not)
{
	begin_take(LIE_NOTHING);
	peer.lie = LIE_ELSEWHERE_AGAIN;
	expect_failure(PEER_STALL_MS, -EPROTO, "sends us elsewhere");
}

/* ---- one connection after another ------------------------------------------- */

/* The peer, and `empty` nodes that have nothing. */
static void list_places(unsigned empty)
{
	places = (struct peer_places){.count = 1 + empty, .ref = "m@v1"};
	for (unsigned i = 0; i <= empty; i++) {
		struct peer_place *place = &places.items[i];

		snprintf(place->host, sizeof(place->host), "127.0.0.%u", 1 + i);
		place->port = peer.port;
		place->offered = i == 0;
	}
}

static void fetch_for(int64_t pause_ms, int64_t patience_ms)
{
	fetch = (struct peer_fetch){
		.part = &part,
		.offer = &offer,
		.keys = peer.keys,
		.places = &places,
		.threads = 2,
		.lanes = 2,
		.pause_ms = pause_ms,
		.patience_ms = patience_ms,
		.watch_ms = 200,
		.slow_ms = 500,
		.stop = &stop,
	};
	peer_fetch_run(&fetch);
	cr_expect(atomic_load(&fetch.ended));
}

static void run_fetch(void)
{
	list_places(0);
	fetch_for(1, 1000);
}

Test(peer_take, goes_on_after_a_connection_that_broke)
{
	begin_take(LIE_RESET);
	peer.lies_until = 2; /* the offer's own was the first */
	run_fetch();
	cr_expect_eq(fetch.error.code, 0, "%s", fetch.error.message);
	cr_expect_geq(fetch.failures, 1);
	expect_all();
}

Test(peer_take, goes_on_after_a_peer_that_lacks_memory)
{
	begin_take(LIE_NO_MEMORY);
	peer.lies_until = 2; /* the offer's own was the first */
	run_fetch();
	cr_expect_eq(fetch.error.code, 0, "%s", fetch.error.message);
	cr_expect_eq(fetch.failures, 1);
	expect_all();
}

Test(peer_take, goes_on_at_the_first_peer_if_the_next_one_is_not_there)
{
	begin_take(LIE_NOTHING);
	peer.lie = LIE_ELSEWHERE;
	peer.lies_until = 2; /* the offer's own was the first */
	run_fetch();
	cr_expect_eq(fetch.error.code, 0, "%s", fetch.error.message);
	cr_expect_eq(fetch.failures, 1);
	expect_all();
}

/* A server is away for some tries, as in a restart. Nodes that never had the version neither use up the load's patience, nor hold it up:
 * each is asked once. */
static void survive_beside(unsigned empty)
{
	begin_take(LIE_RESTART);
	peer.lies_until = 5; /* two connections before it is away, and three while it is */
	list_places(empty);
	fetch_for(PEER_PAUSE_MS, PEER_PATIENCE_MS);
	cr_expect_eq(fetch.error.code, 0, "%s", fetch.error.message);
	cr_expect_leq(atomic_load(&peer.empty_connections), empty);
	cr_expect_leq(fetch.failures, 4 + empty);
	expect_all();
}

Test(peer_take, survives_a_restart_alone)
{
	survive_beside(0);
}

Test(peer_take, survives_a_restart_beside_a_node_that_has_nothing)
{
	survive_beside(1);
}

Test(peer_take, survives_a_restart_beside_4_nodes_that_have_nothing)
{
	survive_beside(4);
}

Test(peer_take, survives_a_restart_beside_11_nodes_that_have_nothing)
{
	survive_beside(11);
}

Test(peer_take, survives_a_restart_beside_15_nodes_that_have_nothing)
{
	survive_beside(15);
}

Test(peer_take, survives_a_restart_beside_63_nodes_that_have_nothing)
{
	survive_beside(63);
}

/* It would take 4 s: a piece a second. */
Test(peer_take, leaves_a_slow_peer_for_a_faster_one)
{
	begin_take(LIE_SLOW);
	list_places(1);
	strcpy(places.items[1].host, FAKE_FAST);
	fetch_for(1, 1000);
	cr_expect_eq(fetch.error.code, 0, "%s", fetch.error.message);
	cr_expect_eq(fetch.left, 1);
	cr_expect_eq(fetch.failures, 0, "%s", fetch.last.message);
	expect_all();
}

Test(peer_take, stays_at_a_slow_peer_that_has_it_alone)
{
	begin_take(LIE_SLOW);
	list_places(2); /* the others have nothing */
	fetch_for(1, 1000);
	cr_expect_eq(fetch.error.code, 0, "%s", fetch.error.message);
	cr_expect_leq(fetch.left, 2, "it asked each of the others once");
	cr_expect_leq(atomic_load(&peer.empty_connections), 2);
	expect_all();
}

/* It is redirected to a slow one, and asks in vain for more where it was redirected. */
Test(peer_take, stays_in_a_slow_chain_if_there_is_no_faster_way)
{
	begin_take(LIE_NOTHING);
	peer.lie = LIE_CHAIN;
	list_places(0);
	fetch_for(1, 1000);
	cr_expect_eq(fetch.error.code, 0, "%s", fetch.error.message);
	cr_expect_eq(fetch.left, 1);
	cr_expect_eq(fetch.failures, 0, "%s", fetch.last.message);
	expect_all();
}

Test(peer_take, gives_up_at_the_end_of_its_patience_and_says_how_far_it_came)
{
	begin_take(LIE_NOTHING);
	atomic_store(&stop, false);
	fake_peer_end(&peer);
	list_places(0);
	fetch_for(1, 300);
	peer.keys = NULL;
	cr_expect_eq(fetch.error.code, -ECONNREFUSED, "%s", fetch.error.message);
	cr_expect_gt(fetch.failures, 2);
	cr_expect(strstr(fetch.error.message, "0 of 9441280 bytes came: 127.0.0.1, port "), "%s",
		  fetch.error.message);
}

Test(peer_take, names_every_node_with_its_reason_when_it_gives_up)
{
	begin_take(LIE_RESTART);
	list_places(3);
	places.items[3].port = 1; /* nobody is there */
	fetch_for(10, 3000);
	cr_expect_eq(fetch.error.code, -ECONNRESET, "%s", fetch.error.message);
	cr_expect(strstr(fetch.error.message, "none of 4 nodes gives m@v1: 2 do not have it; 127.0.0.1:"), "%s",
		  fetch.error.message);
	cr_expect(strstr(fetch.error.message, "; 127.0.0.4, port 1: Connection refused"), "%s",
		  fetch.error.message);
}

Test(peer_take, gives_up_at_once_when_nobody_has_the_version_any_more)
{
	begin_take(LIE_NOTHING);
	peer.lie = LIE_FORGETS;
	list_places(2);
	fetch_for(PEER_PAUSE_MS, PEER_PATIENCE_MS);
	cr_expect_eq(fetch.error.code, -ENOENT, "%s", fetch.error.message);
	cr_expect_eq(fetch.failures, 3, "each was asked once");
	cr_expect(strstr(fetch.error.message, "none of 3 nodes gives m@v1: 3 do not have it"), "%s",
		  fetch.error.message);
}

Test(peer_take, copies_a_replica_from_its_origin)
{
	struct taken_part copy = {.id = "host", .world = 1, .index = -1, .origin = &part};
	struct peer_elsewhere elsewhere;

	begin_take(LIE_NOTHING);
	cr_assert_eq(take(PEER_STALL_MS, true, &elsewhere), 0);
	copy.offer = &offer.parts[0];
	copy.device = part.device;
	cr_assert_eq(peer_part_make(&copy, nothing, NULL, &error), 0);
	fetch = (struct peer_fetch){.part = &copy, .stop = &stop};
	peer_fetch_run(&fetch);
	cr_expect_eq(fetch.error.code, 0, "%s", fetch.error.message);
	cr_expect_arr_eq(copy.segments[0].address, fake_peer_bytes(0), FAKE_BYTES);
	peer_part_end(&copy);
}
