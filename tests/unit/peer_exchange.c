/* Messages on a link, right ones and wrong ones. */
#include "tests/support/peer/certificates.h"
#include "tests/support/peer/pair.h"

#include "peer/exchange.h"

#include <criterion/criterion.h>
#include <endian.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

static struct peer_keys *keys;
static struct accepting server;
static struct link *client;
static struct error error;
static struct peer_message got;

static void begin(void)
{
	signal(SIGPIPE, SIG_IGN);
	pair_by_secret(&server, &keys, &client);
}

static void end(void)
{
	peer_message_clear(&got);
	link_close(client);
	accepting_end(&server);
	peer_keys_release(keys);
	certificates_end();
}

TestSuite(exchange, .init = begin, .fini = end);

static int receive(void)
{
	peer_message_clear(&got);
	return peer_receive(server.link, PEER_HELLO_BYTES_MAX, 1000, &got, &error);
}

static void send_bytes(uint32_t length, const void *data, size_t bytes)
{
	length = htole32(length);
	cr_assert_eq(link_write(client, &length, 4, 1000, &error), 0);
	cr_assert_eq(link_write(client, data, bytes, 1000, &error), 0);
}

Test(exchange, a_message_comes_whole)
{
	struct message_writer w;

	message_writer_init(&w, PEER_MESSAGE_BYTES_MAX);
	message_request(&w, 7, "find");
	message_put_text(&w, "ref", "m@v1");
	message_end(&w);
	cr_assert_eq(peer_send(client, &w, &error), 0, "%s", error.message);
	cr_assert_eq(receive(), 0, "%s", error.message);
	cr_expect(got.message.type == MESSAGE_REQUEST && got.message.id == 7);
	cr_expect_str_eq(got.message.method, "find");
}

Test(exchange, a_writer_that_went_wrong_sends_nothing)
{
	struct message_writer w;

	message_writer_init(&w, 16);
	message_request(&w, 7, "a-method-of-many-letters");
	message_end(&w);
	cr_expect_eq(peer_send(client, &w, &error), -EMSGSIZE, "%s", error.message);
	client = link_close(client);
	cr_expect_eq(receive(), -ENOLINK);
}

/* ---- lengths ---- */

Test(exchange, a_message_that_is_too_long)
{
	send_bytes(PEER_HELLO_BYTES_MAX + 1, "x", 1);
	cr_expect_eq(receive(), -EPROTO);
	cr_expect(strstr(error.message, "4097 bytes; 1 to 4096"), "%s", error.message);
}

Test(exchange, a_message_of_four_gigabytes)
{
	send_bytes(UINT32_MAX, "x", 1);
	cr_expect_eq(receive(), -EPROTO);
}

Test(exchange, a_message_of_nothing)
{
	send_bytes(0, "x", 1);
	cr_expect_eq(receive(), -EPROTO);
}

Test(exchange, a_message_that_ends_early)
{
	send_bytes(100, "x", 1);
	client = link_close(client);
	cr_expect_eq(receive(), -ECONNRESET, "%s", error.message);
}

Test(exchange, a_length_that_ends_early)
{
	cr_assert_eq(link_write(client, "xx", 2, 1000, &error), 0);
	client = link_close(client);
	cr_expect_eq(receive(), -ECONNRESET, "%s", error.message);
}

Test(exchange, an_end_between_messages)
{
	client = link_close(client);
	cr_expect_eq(receive(), -ENOLINK);
}

/* ---- bytes ---- */

/* Five bytes that would make msgpack-c ask for 16 GiB, and others that are no message. */
Test(exchange, bytes_that_are_no_message)
{
	static const struct {
		const char *bytes;
		size_t count;
	} wrong[] = {{"\xdd\xff\xff\xff\xff", 5},
		     {"\xc1", 1},
		     {"\x94\x00\x01", 3},
		     {"hello", 5},
		     {"\x93\x02\xa4", 3}};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		send_bytes((uint32_t)wrong[i].count, wrong[i].bytes, wrong[i].count);
		cr_expect_eq(receive(), -EPROTO, "%zu", i);
		cr_expect(strstr(error.message, "no message"), "%s", error.message);
	}
}

/* ---- calls ---- */

/* Answers the client's next request with what the writer has, in the other direction. */
static int call_with(struct message_writer *answer)
{
	struct peer_index_result result;

	message_end(answer);
	cr_assert_eq(peer_send(server.link, answer, &error), 0);
	return peer_call(client, &form_peer_index,
			 &(struct peer_index_params){.version = &(struct version_id){{1}}, .rank = 0}, &result,
			 &got, &error);
}

Test(exchange, an_answer_that_is_right)
{
	struct message_writer w;

	message_writer_init(&w, 1000);
	message_response(&w, 1);
	message_put_u64(&w, "bytes", 12);
	cr_expect_eq(call_with(&w), 0, "%s", error.message);
}

Test(exchange, an_answer_to_another_request)
{
	struct message_writer w;

	message_writer_init(&w, 1000);
	message_response(&w, 2);
	message_put_u64(&w, "bytes", 12);
	cr_expect_eq(call_with(&w), -EPROTO);
	cr_expect(strstr(error.message, "no answer"), "%s", error.message);
}

Test(exchange, an_answer_without_its_key)
{
	struct message_writer w;

	message_writer_init(&w, 1000);
	message_response(&w, 1);
	message_put_u64(&w, "bits", 12);
	cr_expect_eq(call_with(&w), -EPROTO);
	cr_expect(strstr(error.message, "bytes"), "%s", error.message);
}

/* An index of more than there can be would be room for nothing. */
Test(exchange, an_answer_above_its_limit)
{
	struct message_writer w;

	message_writer_init(&w, 1000);
	message_response(&w, 1);
	message_put_u64(&w, "bytes", INDEX_BYTES_MAX + 1);
	cr_expect_eq(call_with(&w), -EPROTO);
}

Test(exchange, an_answer_that_is_an_error)
{
	struct message_writer w;
	const uint64_t id = 1;
	struct error why;

	error_set(&why, -ENOENT, "ask another", "no such version");
	message_writer_init(&w, 1000);
	message_response_error(&w, &id, &why);
	cr_assert_eq(peer_send(server.link, &w, &error), 0);
	message_writer_init(&w, 1000);
	message_response(&w, 1);
	cr_expect_eq(call_with(&w), -ENOENT);
	cr_expect(strstr(error.message, "127.0.0.1:") && strstr(error.message, "no such version"), "%s",
		  error.message);
	cr_expect_str_eq(error.detail, "ask another");
}

Test(exchange, an_end_instead_of_an_answer)
{
	struct peer_hello_result hello;

	server.link = link_close(server.link);
	cr_expect_lt(peer_greet(client, "test", &hello, &got, &error), 0);
	cr_expect_neq(error.code, -ENOLINK, "%s", error.message);
}

Test(exchange, a_server_of_another_protocol)
{
	struct peer_hello_result hello;
	struct message_writer w;

	message_writer_init(&w, 1000);
	message_response(&w, 1);
	message_put_u64(&w, "protocol", 9);
	message_put_text(&w, "node", "n");
	message_put_text(&w, "program", "gpuwm-peer 9");
	message_end(&w);
	cr_assert_eq(peer_send(server.link, &w, &error), 0);
	cr_expect_eq(peer_greet(client, "test", &hello, &got, &error), -EPROTONOSUPPORT);
	cr_expect(strstr(error.message, "gpuwm-peer 9"), "%s", error.message);
}
