/* The requests of a connection, with a source that the test makes. Bytes are tried in tests/unit/peer_wire.c and by whole programs. */
#include "tests/support/peer/certificates.h"
#include "tests/support/peer/pair.h"

#include "base/clock.h"
#include "peer/serve.h"
#include "peer/wire.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

static struct peer_keys *keys;
static struct accepting accepted;
static struct link *client;
static struct error error, served_error;
static struct serve_report report;
static struct peer_message got;
static pthread_t thread;
static int served;

/* ---- the source: one version of one rank ---------------------------------------- */

#define PIECES 5

static const struct served_segment segment = {.data = "", .bytes = PIECES * SUMS_PIECE_BYTES - 1};
static struct served_part part = {.index = "index", .index_bytes = 5, .segments = &segment, .segment_count = 1};
static struct served_version version = {.id = {{7}}, .model = "m", .tag = "v1", .world = 1, .parts = &part};
static struct sum sums_of[PIECES];
static int holds;

static int list(void *user, uint64_t from, struct message_writer *w, struct error *ret_error)
{
	(void)user;
	if (from > 1)
		return error_set(ret_error, -EAGAIN, NULL, "no list today");
	record_put(w, form_peer_list.result, &(struct peer_list_result){0});
	message_begin_array(w, "versions");
	message_end(w);
	return 0;
}

static int find(void *user, const char *ref, struct served_version **ret, struct error *ret_error)
{
	(void)user;
	if (strcmp(ref, "m@v1") != 0 && strcmp(ref, "07000000000000000000000000000000") != 0)
		return error_set(ret_error, -ENOENT, NULL, "there is no %s", ref);
	holds++;
	*ret = &version;
	return 0;
}

static void leave(void *user, struct served_version *left)
{
	(void)user;
	cr_expect_eq(left, &version);
	holds--;
}

/* Two become known at a time; with `user` the fourth never. */
static int64_t sums(void *user, struct served_version *of, const struct served_pieces *pieces,
		    const struct sum **ret_sums, struct error *ret_error)
{
	(void)of;
	if (user && pieces->first >= 3)
		return error_set(ret_error, -EIO, NULL, "the memory can't be read");
	*ret_sums = sums_of + pieces->first;
	return PIECES - pieces->first > 2 ? 2 : (int64_t)(PIECES - pieces->first);
}

static const struct serve_source source = {.list = list, .find = find, .leave = leave, .sums = sums};
static struct server server = {.source = &source, .program = "gpuwm-peer test"};

/* ---- the connection ------------------------------------------------------------- */

static void *serve(void *user)
{
	(void)user;
	served = serve_link(&server, accepted.link, &report, &served_error);
	link_interrupt(accepted.link);
	return NULL;
}

static void begin(void)
{
	signal(SIGPIPE, SIG_IGN);
	pair_by_secret(&accepted, &keys, &client);
	cr_assert_eq(memory_device_open("host", &part.device, &error), 0);
	memset(sums_of, 's', sizeof(sums_of));
	pthread_create(&thread, NULL, serve, NULL);
}

/* Ends the connection, if it goes on, and waits for the server's side. */
static void stop(void)
{
	client = link_close(client);
	if (thread)
		pthread_join(thread, NULL);
	thread = 0;
}

static void end(void)
{
	stop();
	peer_message_clear(&got);
	accepting_end(&accepted);
	peer_keys_release(keys);
	takers_free(server.takers);
	certificates_end();
}

TestSuite(serve, .init = begin, .fini = end);

static int call(const struct message_form *form, const void *params, void *result)
{
	peer_message_clear(&got);
	return peer_call(client, form, params, result, &got, &error);
}

static void greet(void)
{
	struct peer_hello_result hello;

	cr_assert_eq(peer_greet(client, "test 1", &hello, &got, &error), 0, "%s", error.message);
	cr_expect_str_eq(hello.program, "gpuwm-peer test");
}

/* ---- hello ---- */

Test(serve, greets_and_ends_with_the_peer)
{
	greet();
	stop();
	cr_expect_eq(served, 0, "%s", served_error.message);
	cr_expect_str_eq(report.program, "test 1");
}

Test(serve, the_first_request_is_hello)
{
	struct peer_list_result result;

	cr_expect_lt(call(&form_peer_list, &(struct peer_list_params){0}, &result), 0);
	stop();
	cr_expect_eq(served, -EPROTO, "%s", served_error.message);
	cr_expect(strstr(served_error.message, "did not begin with hello"), "%s", served_error.message);
}

Test(serve, a_peer_that_speaks_another_protocol_is_told_both)
{
	struct peer_hello_result result;

	cr_expect_eq(call(&form_peer_hello, &(struct peer_hello_params){8, 9, "n", "gpuwm-loader 9"}, &result),
		     -EPROTONOSUPPORT);
	cr_expect(strstr(error.message, "gpuwm-loader 9 speaks protocols 8 to 9"), "%s", error.message);
	stop();
	cr_expect_eq(served, -EPROTONOSUPPORT);
}

/* ---- requests ---- */

Test(serve, an_unknown_request_is_refused_and_the_connection_goes_on)
{
	static const struct message_form unknown = {
		.name = "load", .params = &record_nothing, .result = &record_nothing};
	struct peer_list_result result;

	greet();
	cr_expect_eq(call(&unknown, &(int){0}, &result), -ENOSYS);
	cr_expect_eq(call(&form_peer_list, &(struct peer_list_params){0}, &result), 0, "%s", error.message);
}

Test(serve, the_sources_errors_reach_the_peer)
{
	struct peer_list_result result;

	greet();
	cr_expect_eq(call(&form_peer_list, &(struct peer_list_params){2}, &result), -EAGAIN);
	cr_expect(strstr(error.message, "no list today"), "%s", error.message);
}

Test(serve, a_notification_is_no_request)
{
	struct message_writer w;

	greet();
	message_write_notification(&w, &form_peer_want, &(struct peer_want_params){0});
	cr_assert_eq(peer_send(client, &w, &error), 0);
	pthread_join(thread, NULL);
	thread = 0;
	cr_expect_eq(served, -EPROTO);
}

Test(serve, a_version_is_held_from_find_to_the_end)
{
	struct peer_find_result found;

	greet();
	cr_expect_eq(call(&form_peer_find, &(struct peer_find_params){"m@v2"}, &found), -ENOENT);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(call(&form_peer_find, &(struct peer_find_params){"m@v1"}, &found), 0, "%s",
			     error.message);
		cr_expect_eq(holds, 1);
	}
	cr_expect(found.world == 1 && found.parts.count == 1 && found.piece_bytes == SUMS_PIECE_BYTES);
	cr_expect_eq(found.parts.items[0].bytes, segment.bytes);
	cr_expect_str_eq(found.parts.items[0].device, "host");
	cr_expect_null(found.fingerprint);
	stop();
	cr_expect_eq(holds, 0);
}

Test(serve, sends_the_index)
{
	struct peer_index_params params = {.version = &version.id};
	struct peer_index_result result;
	char index[6] = "";

	greet();
	cr_assert_eq(call(&form_peer_index, &params, &result), 0, "%s", error.message);
	cr_assert_eq(result.bytes, 5);
	cr_assert_eq(link_read(client, index, 5, 1000, &error), 0);
	cr_expect_str_eq(index, "index");
	params.rank = 1;
	cr_expect_eq(call(&form_peer_index, &params, &result), -ENOENT);
	cr_expect(strstr(error.message, "no rank 1: it has 1"), "%s", error.message);
}

Test(serve, sends_sums_as_they_become_known)
{
	struct peer_sums_params params = {.version = &version.id, .from = 1};
	struct sum read[PIECES];
	struct peer_sums_result result;

	greet();
	cr_assert_eq(call(&form_peer_sums, &params, &result), 0, "%s", error.message);
	cr_assert_eq(result.pieces, PIECES - 1);
	cr_assert_eq(link_read(client, read, (PIECES - 1) * sizeof(*read), 1000, &error), 0);
	cr_expect_eq(memcmp(read, sums_of, (PIECES - 1) * sizeof(*read)), 0);
	params.from = PIECES;
	cr_expect_eq(call(&form_peer_sums, &params, &result), -ENOENT);
	params = (struct peer_sums_params){.version = &version.id, .segment = 1};
	cr_expect_eq(call(&form_peer_sums, &params, &result), -ENOENT);
}

/* The answer has told how many there are: nothing but the end says that they won't come. */
Test(serve, sums_that_can_not_be_computed_end_the_connection)
{
	struct peer_sums_params params = {.version = &version.id};
	struct sum read[PIECES];
	struct peer_sums_result result;

	server.user = &holds;
	greet();
	cr_assert_eq(call(&form_peer_sums, &params, &result), 0, "%s", error.message);
	cr_expect_lt(link_read(client, read, sizeof(read), 1000, &error), 0);
	stop();
	cr_expect_eq(served, -EIO, "%s", served_error.message);
}

/* ---- takers ---- */

static int take(uint64_t serves, bool stay, struct peer_take_result *ret)
{
	struct peer_take_params params = {.version = &version.id,
					  .wire = "tls",
					  .worker = "00",
					  .nonce = 1,
					  .serves = &serves,
					  .stay = stay};

	return call(&form_peer_take, &params, ret);
}

Test(serve, a_newcomer_is_sent_on_to_a_taker_that_serves)
{
	const uint64_t port = 4711;
	struct peer_take_params first = {.version = &version.id, .worker = "", .serves = &port};
	struct peer_redirect none;
	struct peer_take_result result;
	struct taker *taker;

	server.takers = takers_new(1);
	cr_assert_eq(takers_enter(server.takers, &first, client, &taker, &none), 0);
	greet();
	cr_assert_eq(take(1, false, &result), 0, "%s", error.message);
	cr_assert(result.redirect);
	cr_expect_str_eq(result.redirect->host, "127.0.0.1");
	cr_expect_eq(result.redirect->port, port);
	cr_expect_str_eq(result.redirect->name, "");
	takers_leave(server.takers, taker);
	cr_expect_eq(takers_count(server.takers), 0);
}

Test(serve, a_port_that_is_none)
{
	struct peer_take_result result;

	greet();
	cr_expect_eq(take(65536, false, &result), -EINVAL);
	cr_expect(strstr(error.message, "65536 is no port"), "%s", error.message);
}

/* It gave up before it had a connection for the bytes, and the next taker is not sent on to it. */
Test(serve, a_taker_that_is_done_before_both_sides_have_met_is_not_waited_for)
{
	const struct error why = {.code = -ECANCELED, .message = "the load was cancelled"};
	const uint64_t begin_ms = clock_steady_ms();
	struct peer_take_result result;
	struct message_writer w;

	greet();
	cr_assert_eq(take(1, true, &result), 0, "%s", error.message);
	message_write_notification(&w, &form_peer_done, &(struct peer_done_params){.error = &why});
	cr_assert_eq(peer_send(client, &w, &error), 0, "%s", error.message);
	stop();
	cr_expect_lt(clock_steady_ms() - begin_ms, WIRE_MEET_MS);
	cr_expect_eq(served, 0, "%s", served_error.message);
	cr_expect_not(report.sent.done);
}
