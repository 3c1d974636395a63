#include "client/lib/connection/connection.h"
#include "tests/support/any/child.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/lib/fake.h"

static struct connection *connection;
static int peer; /* the other end, blocking */
static int fds_before;

static void setup(void)
{
	int pair[2];

	fds_before = fd_count();
	cr_assert(eq(int, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0));
	cr_assert(eq(int, connection_new(pair[0], &connection), 0));
	peer = pair[1];
}

static void teardown(void)
{
	connection_free(connection);
	if (peer >= 0)
		close(peer);
	cr_assert(eq(int, fd_count(), fds_before));
}

TestSuite(connection, .init = setup, .fini = teardown);

static void say(struct message_writer *w, const int *fds, size_t fd_count)
{
	cr_assert(eq(int, message_finish(w), 0));
	cr_assert(eq(int, packet_send(peer, w->buffer.data, w->buffer.size, fds, fd_count), 0));
	message_writer_clear(w);
}

/* A response to `id` with one number in it. */
static void respond(uint64_t id, uint64_t number, const int *fds, size_t fd_count)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_response(&w, id);
	message_put_u64(&w, "number", number);
	message_end(&w);
	say(&w, fds, fd_count);
}

static void notify(uint64_t number)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "news");
	message_put_u64(&w, "number", number);
	message_end(&w);
	say(&w, NULL, 0);
}

static int call(int64_t wait_ms, uint64_t *ret_number, struct reply *ret_reply, struct error *error)
{
	struct message_writer w;
	struct reply own, *reply = ret_reply ? ret_reply : &own;
	struct fields f;
	int r;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_request(&w, request_next_id(), "ask");
	message_end(&w);
	r = connection_call(connection, &w, wait_ms, reply, error);
	message_writer_clear(&w);
	if (r < 0)
		return r;
	fields_of(&f, reply->message.body);
	if (ret_number)
		*ret_number = fields_u64_or(&f, "number", 0);
	if (!ret_reply)
		reply_clear(reply);
	return 0;
}

/* Waits for the request, so that the answer comes while the call waits. */
static void *answer_twice(void *unused)
{
	struct pollfd p = {.fd = peer, .events = POLLIN};

	for (uint64_t id = 1; id <= 2; id++) {
		static uint8_t data[PACKET_BYTES_MAX + 1];
		struct packet packet = {.data = data};

		poll(&p, 1, -1);
		packet_receive(peer, true, &packet);
		notify(100 + id);
		respond(id, id * 10, NULL, 0);
	}
	return unused;
}

static void add_number(struct message *message, struct packet *packet, void *user_data, uint64_t round)
{
	struct fields f;

	(void)packet;
	(void)round;
	fields_of(&f, message->body);
	*(uint64_t *)user_data += fields_u64(&f, "number");
}

Test(connection, waits_for_its_answer_and_hands_notifications_on)
{
	uint64_t number = 0, sum = 0;
	pthread_t thread;

	connection_on_notify(connection, add_number, &sum, 0);
	pthread_create(&thread, NULL, answer_twice, NULL);
	cr_assert(eq(int, call(-1, &number, NULL, NULL), 0));
	cr_assert(eq(u64, number, 10));
	cr_assert(eq(int, call(10000, &number, NULL, NULL), 0));
	cr_assert(eq(u64, number, 20));
	cr_assert(eq(u64, sum, 203));
	pthread_join(thread, NULL);
}

Test(connection, drops_answers_to_others_with_their_descriptors)
{
	uint64_t number = 0;
	int fds[2] = {peer, peer};

	respond(77, 1, fds, 2);
	respond(1, 2, NULL, 0);
	cr_assert(eq(int, call(1000, &number, NULL, NULL), 0));
	cr_assert(eq(u64, number, 2));
}

Test(connection, gives_a_reply_its_own_bytes_and_descriptors)
{
	struct reply first, second;
	uint64_t number;
	int fd;

	respond(1, 1, &peer, 1);
	respond(2, 2, NULL, 0);
	cr_assert(eq(int, call(1000, NULL, &first, NULL), 0));
	cr_assert(eq(int, call(1000, &number, &second, NULL), 0));
	cr_assert(eq(int, packet_take_fd(&first.packet, 0, &fd), 0));
	cr_assert(ne(int, fcntl(fd, F_GETFD) & FD_CLOEXEC, 0));
	close(fd);
	reply_clear(&first);
	reply_clear(&second);
	reply_clear(&second);
}

Test(connection, passes_on_the_refusal_of_the_peer)
{
	struct error error, refusal;
	struct message_writer w;
	uint64_t id = 1;

	error_set(&refusal, -ENOENT, "see list", "there is no such model");
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_response_error(&w, &id, &refusal);
	say(&w, NULL, 0);
	cr_assert(eq(int, call(1000, NULL, NULL, &error), -ENOENT));
	cr_assert(eq(str, error.message, "there is no such model"));
	cr_assert(eq(str, error.detail, "see list"));
}

Test(connection, tells_the_reason_that_a_peer_gave_before_it_left)
{
	struct error error, refusal;
	struct message_writer w;

	error_set(&refusal, -EDQUOT, "ask an operator", "too many sessions");
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_response_error(&w, NULL, &refusal);
	say(&w, NULL, 0);
	close(peer);
	peer = -1;
	cr_assert(eq(int, call(1000, NULL, NULL, &error), -EDQUOT));
	cr_assert(eq(int, call(1000, NULL, NULL, &error), -ECONNRESET));
	cr_assert(strstr(error.message, "too many sessions") != NULL);
}

Test(connection, says_that_the_peer_has_left)
{
	struct error error;

	close(peer);
	peer = -1;
	cr_assert(eq(int, call(-1, NULL, NULL, &error), -ECONNRESET));
	cr_assert(eq(int, connection_poll(connection, 0), -ECONNRESET));
}

Test(connection, is_given_up_after_a_call_without_an_answer)
{
	struct error error;
	uint64_t number;

	cr_assert(eq(int, call(20, &number, NULL, &error), -ETIMEDOUT));
	cr_assert(eq(int, call(1000, &number, NULL, &error), -ECONNRESET));
	cr_assert(strstr(error.message, "the peer did not answer in time") != NULL, "%s", error.message);
}

Test(connection, refuses_what_is_no_message)
{
	struct error error;

	cr_assert(eq(int, packet_send(peer, "\xc1", 1, NULL, 0), 0));
	cr_assert(eq(int, call(1000, NULL, NULL, &error), -EPROTO));
	cr_assert(eq(int, call(1000, NULL, NULL, &error), -ECONNRESET));
}

Test(connection, refuses_a_request_that_fits_no_packet)
{
	static char text[PACKET_BYTES_MAX];
	struct message_writer w;
	struct error error;

	memset(text, 'x', sizeof(text) - 1);
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_request(&w, 1, "ask");
	message_put_text(&w, "text", text);
	message_end(&w);
	cr_assert(eq(int, connection_call(connection, &w, 0, NULL, &error), -EMSGSIZE));
	cr_assert(strstr(error.message, "65536") != NULL);
	message_writer_clear(&w);
	respond(1, 1, NULL, 0);
	cr_assert(eq(int, call(1000, NULL, NULL, &error), 0));
}

Test(connection, says_that_there_is_no_room_for_descriptors)
{
	struct rlimit limit, low;
	struct error error;

	respond(1, 1, &peer, 1);
	getrlimit(RLIMIT_NOFILE, &limit);
	low = limit;
	low.rlim_cur = 0;
	setrlimit(RLIMIT_NOFILE, &low);
	cr_expect(eq(int, call(1000, NULL, NULL, &error), -EMFILE));
	setrlimit(RLIMIT_NOFILE, &limit);
	cr_assert(strstr(error.detail, "RLIMIT_NOFILE") != NULL);
}

Test(connection, polls_for_notifications)
{
	uint64_t sum = 0;

	connection_on_notify(connection, add_number, &sum, 0);
	cr_assert(eq(int, connection_poll(connection, 0), 0));
	cr_assert(eq(int, connection_poll(connection, 10), 0));
	notify(1);
	notify(2);
	cr_assert(eq(int, connection_poll(connection, -1), 2));
	cr_assert(eq(u64, sum, 3));
}

/* What is handled is said again, so often. */
static void say_again(struct message *message, struct packet *packet, void *left, uint64_t round)
{
	unsigned *often = left;

	(void)message;
	(void)packet;
	(void)round;
	if (*often == 0)
		return;
	*often -= 1;
	notify(1);
}

Test(connection, gives_up_on_a_peer_that_says_anything_but_the_answer)
{
	unsigned left = 1000000;
	struct error error;

	connection_on_notify(connection, say_again, &left, 0);
	notify(1);
	cr_assert(eq(int, call(50, NULL, NULL, &error), -ETIMEDOUT));
	cr_assert(left > 0, "it waited for the end of them");
}

Test(connection, comes_back_from_a_peer_that_never_stops)
{
	unsigned left = 100000;

	connection_on_notify(connection, say_again, &left, 0);
	notify(1);
	cr_assert(connection_poll(connection, -1) > 1000);
	cr_assert(left > 0, "it waited for the end of them");
}

Test(connection, sends_notifications)
{
	static uint8_t data[PACKET_BYTES_MAX + 1];
	struct packet packet = {.data = data};
	struct message_writer w;
	struct message m;
	const char *why;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "news");
	message_end(&w);
	cr_assert(eq(int, connection_notify(connection, &w, NULL), 0));
	message_writer_clear(&w);
	cr_assert(eq(int, packet_receive(peer, true, &packet), 1));
	cr_assert(eq(int, message_read(packet.data, packet.bytes, &m, &why), 0));
	cr_assert(eq(str, m.method, "news"));
	message_clear(&m);
}

static void *read_all(void *unused)
{
	static uint8_t data[PACKET_BYTES_MAX + 1];
	struct packet packet = {.data = data};
	struct pollfd p = {.fd = peer, .events = POLLIN};
	int count = 0;

	while (count < 32 && poll(&p, 1, -1) > 0)
		count += packet_receive(peer, true, &packet) == 1;
	return unused;
}

Test(connection, waits_for_a_peer_that_reads_slowly)
{
	static char text[PACKET_BYTES_MAX / 2];
	struct message_writer w;
	pthread_t thread;

	memset(text, 'x', sizeof(text) - 1);
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "news");
	message_put_text(&w, "text", text);
	message_end(&w);
	for (int i = 0; i < 32; i++) {
		if (i == 4)
			pthread_create(&thread, NULL, read_all, NULL);
		cr_assert(eq(int, connection_notify(connection, &w, NULL), 0));
	}
	pthread_join(thread, NULL);
	message_writer_clear(&w);
}

/* A result in a memfd with these seals, said to hold `bytes`. */
static void respond_body(int seals, uint64_t bytes)
{
	int fd = memfd_create("body", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct message_writer w;

	/* {"number": 9} */
	cr_assert(eq(long, write(fd, "\x81\xa6number\x09", 9), 9));
	cr_assert(eq(int, fcntl(fd, F_ADD_SEALS, seals), 0));
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_response(&w, 1);
	message_put_u64(&w, "body", 0);
	message_put_u64(&w, "bytes", bytes);
	message_end(&w);
	say(&w, &fd, 1);
	close(fd);
}

Test(connection, reads_a_large_result_from_its_memfd)
{
	uint64_t number = 0;

	respond_body(F_SEAL_WRITE | F_SEAL_SHRINK, 9);
	cr_assert(eq(int, call(1000, &number, NULL, NULL), 0));
	cr_assert(eq(u64, number, 9));
}

Test(connection, refuses_a_large_result_that_can_still_change)
{
	struct error error;

	respond_body(F_SEAL_SHRINK, 9);
	cr_assert(eq(int, call(1000, NULL, NULL, &error), -EPROTO));
}

Test(connection, refuses_a_large_result_that_is_too_short_or_damaged)
{
	struct error error;

	respond_body(F_SEAL_WRITE | F_SEAL_SHRINK, 10);
	cr_assert(eq(int, call(1000, NULL, NULL, &error), -EPROTO));
}

Test(connection, refuses_a_large_result_without_its_map)
{
	struct error error;

	respond_body(F_SEAL_WRITE | F_SEAL_SHRINK, 3);
	cr_assert(eq(int, call(1000, NULL, NULL, &error), -EPROTO));
}

/* 0 when every call in this child is refused and the socket is closed in it. */
static int refused_in_child(int sock)
{
	struct message_writer w;
	struct error error;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "news");
	message_end(&w);
	if (call(1000, NULL, NULL, &error) != -ECHILD || connection_poll(connection, 0) != -ECHILD)
		return 1;
	if (connection_notify(connection, &w, &error) != -ECHILD)
		return 2;
	if (fcntl(sock, F_GETFD) != -1)
		return 3;
	connection_free(connection);
	return 0;
}

Test(connection, refuses_calls_in_a_child_and_stays_whole_in_the_parent)
{
	int sock = connection_fd(connection);

	cr_assert(eq(int, IN_CHILD(refused_in_child(sock)), 0));
	respond(1, 1, NULL, 0);
	cr_assert(eq(int, call(1000, NULL, NULL, NULL), 0));
}
