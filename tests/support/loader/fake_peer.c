#include "fake_peer.h"

#include "base/clock.h"
#include "peer/serve.h"
#include "proto/index/dtype.h"
#include "proto/index/index.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONNECTIONS_MAX 256 /* of a test: a take has some */

static struct {
	struct fake_peer *peer;
	int listener, secret;
	pthread_t thread, threads[CONNECTIONS_MAX]; /* of the listener, and of each connection so far */
	unsigned thread_count;
	atomic_bool ending;
	uint64_t sent_ms; /* when it last had a piece, of LIE_SLOW */
	uint8_t *bytes[2], *wrong; /* wrong: those of the first segment, with errors */
	struct sum sums[2][3];
	void *index;
	uint64_t index_bytes;
	struct served_segment segments[2];
	struct served_part part;
	struct served_version version;
	struct takers *takers;
	uint8_t looked[3];
} fake;

static _Thread_local struct link *own_link; /* of the thread's connection */
static _Thread_local struct error error;
static _Thread_local bool asked; /* its connection is no lane */
static _Thread_local bool is_empty, is_fast,
	is_next; /* it is to a node that has nothing; to FAKE_FAST; to FAKE_NEXT */

const uint8_t *fake_peer_bytes(uint32_t segment)
{
	return fake.bytes[segment];
}

/* ---- the version ----------------------------------------------------------- */

static void fill(uint32_t segment, size_t bytes)
{
	uint32_t number = 1 + segment;

	fake.bytes[segment] = malloc(bytes);
	for (size_t i = 0; i < bytes; i++) {
		number = number * 1664525 + 1013904223;
		fake.bytes[segment][i] = (uint8_t)(number >> 24);
	}
	for (size_t i = 0; i * SUMS_PIECE_BYTES < bytes; i++)
		sums_piece(fake.bytes[segment] + i * SUMS_PIECE_BYTES, sums_piece_bytes(bytes, i),
			   &fake.sums[segment][i]);
}

static void add_tensor(struct index_builder *builder, uint32_t segment, uint64_t bytes)
{
	const struct index_tensor_spec spec = {
		.name = segment ? "b" : "a",
		.dtype = dtype_from_name("U8"),
		.ndim = 1,
		.shape = &bytes,
		.segment = segment,
	};
	struct digest digest = digest_of(fake.bytes[segment], bytes);

	cr_assert_eq(index_builder_segment(builder, fake.segments[segment].bytes), 0);
	cr_assert_eq(index_builder_tensor(builder, &spec, &error), 0, "%s", error.message);
	cr_assert_eq(index_builder_digest(builder, segment, &digest), 0);
}

static void make_index(uint32_t rank, uint32_t world)
{
	struct index_builder *builder = index_builder_new(rank, world);
	int fd;

	add_tensor(builder, 0, FAKE_BYTES);
	add_tensor(builder, 1, FAKE_TAIL);
	cr_assert_eq(index_builder_finish(builder, &fd, &fake.index_bytes, &error), 0, "%s", error.message);
	index_builder_free(builder);
	fake.index = malloc(fake.index_bytes);
	cr_assert_eq(pread(fd, fake.index, fake.index_bytes, 0), (ssize_t)fake.index_bytes);
	close(fd);
}

static void make_version(void)
{
	bool other_rank = fake.peer->lie == LIE_RANK;

	fill(0, FAKE_BYTES);
	fill(1, FAKE_TAIL);
	fake.wrong = malloc(FAKE_BYTES);
	memcpy(fake.wrong, fake.bytes[0], FAKE_BYTES);
	for (size_t i = 0; i < FAKE_BYTES; i += SUMS_PIECE_BYTES)
		fake.wrong[i] ^= 1;
	fake.segments[0] = (struct served_segment){fake.bytes[0], FAKE_BYTES};
	fake.segments[1] = (struct served_segment){fake.bytes[1], FAKE_TAIL};
	if (fake.peer->lie == LIE_HUGE)
		fake.segments[1].bytes = UINT64_C(1) << 62;
	make_index(other_rank, other_rank ? 2 : 1);
	if (fake.peer->lie == LIE_INDEX)
		((uint8_t *)fake.index)[fake.index_bytes - 1] ^= 1;
	if (fake.peer->lie == LIE_SUMS)
		fake.sums[0][0].bytes[0] ^= 1;
	if (fake.peer->lie == LIE_SMALLER)
		fake.segments[0].bytes -= 4096;
	fake.part = (struct served_part){.index = fake.index, .index_bytes = fake.index_bytes};
	fake.part.segments = fake.segments;
	fake.part.segment_count = 2;
	cr_assert_eq(memory_device_open("host", &fake.part.device, &error), 0);
	fake.version = (struct served_version){.model = "m", .tag = "v1", .world = 1, .parts = &fake.part};
}

/* ---- its answers ----------------------------------------------------------- */

static bool lies(enum fake_lie lie)
{
	const struct fake_peer *peer = fake.peer;

	return peer->lie == lie && !is_fast &&
	       (peer->lies_until == 0 || atomic_load(&peer->connections) < peer->lies_until);
}

static int find(void *user, const char *ref, struct served_version **ret, struct error *why)
{
	(void)user;
	asked = true;
	if (strcmp(ref, "m@v1") != 0 || is_empty || lies(LIE_FORGETS))
		return error_set(why, -ENOENT, NULL, "there is no %s", ref);
	*ret = &fake.version;
	return 0;
}

static void leave(void *user, struct served_version *version)
{
	(void)user;
	(void)version;
}

static int64_t sums(void *user, struct served_version *version, const struct served_pieces *pieces,
		    const struct sum **ret_sums, struct error *why)
{
	(void)user;
	(void)version;
	(void)why;
	*ret_sums = fake.sums[pieces->segment] + pieces->first;
	return (int64_t)(sums_piece_count(fake.segments[pieces->segment].bytes) - pieces->first);
}

static int look(void *user, struct served_version *version, const struct served_pieces *pieces,
		const void **ret, struct error *why)
{
	unsigned number = atomic_fetch_add(&fake.peer->looks, 1);
	bool wrong = lies(LIE_BYTES) ||
		     (lies(LIE_BYTES_ONCE) && pieces->segment == 0 && !fake.looked[pieces->first]);

	(void)user;
	(void)version;
	if (fake.peer->stops)
		atomic_store(fake.peer->stops, true);
	if (lies(LIE_SILENT) ||
	    ((lies(LIE_SLOW) || is_next) && clock_steady_ms() < fake.sent_ms + FAKE_SLOW_MS))
		return 1;
	fake.sent_ms = clock_steady_ms();
	if (lies(LIE_GONE))
		return error_set(why, -ESHUTDOWN, NULL, "the node stops");
	if (lies(LIE_NO_MEMORY))
		return error_set(why, -ENOMEM, NULL, "out of memory");
	if (lies(LIE_RESTART) && number > 0)
		return error_set(why, -ESHUTDOWN, NULL, "the node stops");
	if (lies(LIE_RESET) && number > 0) {
		link_interrupt(own_link);
		return 1; /* the rest never comes, however late the taker hears of the end */
	}
	if (pieces->segment == 0)
		fake.looked[pieces->first] = 1;
	*ret = (pieces->segment == 0 && wrong ? fake.wrong : fake.bytes[pieces->segment]) +
	       pieces->first * SUMS_PIECE_BYTES;
	return 0;
}

static const struct serve_source source = {.find = find, .leave = leave, .sums = sums, .look = look};

/* ---- answers that serve_link does not give ---------------------------------- */

static void answer(uint64_t id, const struct message_form *form, const void *result)
{
	struct message_writer w;

	message_writer_init(&w, PEER_MESSAGE_BYTES_MAX);
	message_response(&w, id);
	record_put(&w, form->result, result);
	message_end(&w);
	peer_send(own_link, &w, &error);
}

static void answer_find(uint64_t id)
{
	const uint64_t bytes = fake.peer->lie == LIE_VAST ? FAKE_VAST : FAKE_BYTES + FAKE_TAIL;
	const struct peer_part part = {0, "host", "host", bytes, 2, fake.index_bytes};

	answer(id, &form_peer_find,
	       &(struct peer_find_result){
		       .version = &fake.version.id,
		       .model = fake.peer->lie == LIE_NAME ? FAKE_NAME : "m",
		       .tag = "v1",
		       .world = fake.peer->lie == LIE_WORLD ? 2 : 1,
		       .parts = {&part, 1},
		       .piece_bytes = SUMS_PIECE_BYTES,
	       });
}

static void answer_take(const struct message *message)
{
	const struct peer_redirect nobody = {"127.0.0.1", 1, ""}, next = {FAKE_NEXT, fake.peer->port, ""};
	const struct error no_more = {-EALREADY, "there is no more", ""};
	struct peer_take_params params;
	struct message_writer w;

	if (!lies(LIE_CHAIN)) {
		answer(message->id, &form_peer_take, &(struct peer_take_result){.redirect = &nobody});
	} else if (record_read(form_peer_take.params, message, &params, &error) == 0 && params.pace) {
		message_writer_init(&w, PEER_MESSAGE_BYTES_MAX);
		message_response_error(&w, &message->id, &no_more);
		peer_send(own_link, &w, &error);
	} else {
		answer(message->id, &form_peer_take, &(struct peer_take_result){.redirect = &next});
	}
}

static void answer_one(const struct message *message)
{
	const char *const ways[] = {"tls"};

	if (strcmp(message->method, form_peer_hello.name) == 0)
		answer(message->id, &form_peer_hello,
		       &(struct peer_hello_result){
			       .protocol = 1, .node = "fake", .program = "fake", .wires = {ways, 1}});
	else if (strcmp(message->method, form_peer_find.name) == 0)
		answer_find(message->id);
	else if (strcmp(message->method, form_peer_index.name) == 0) {
		atomic_fetch_add(&fake.peer->details, 1);
		answer(message->id, &form_peer_index, &(struct peer_index_result){fake.index_bytes});
		link_write(own_link, fake.index, fake.index_bytes, LINK_SILENCE_MS, &error);
	} else if (strcmp(message->method, form_peer_sums.name) == 0) {
		atomic_fetch_add(&fake.peer->details, 1);
		answer(message->id, &form_peer_sums, &(struct peer_sums_result){0});
	} else if (strcmp(message->method, form_peer_take.name) == 0)
		answer_take(message);
}

static void answer_all(void)
{
	struct peer_message message;

	asked = true;
	while (peer_receive(own_link, PEER_MESSAGE_BYTES_MAX, LINK_SILENCE_MS, &message, &error) == 0) {
		answer_one(&message.message);
		peer_message_clear(&message);
	}
}

static bool by_hand(void)
{
	return lies(LIE_SUMS_COUNT) || lies(LIE_HUGE) || lies(LIE_VAST) || lies(LIE_WORLD) || lies(LIE_NAME) ||
	       lies(LIE_ELSEWHERE) || lies(LIE_ELSEWHERE_AGAIN) || (lies(LIE_CHAIN) && !is_next);
}

/* ---- its life -------------------------------------------------------------- */

static bool is_to(int fd, const char *host)
{
	struct sockaddr_in address;
	socklen_t bytes = sizeof(address);

	getsockname(fd, (struct sockaddr *)&address, &bytes);
	return address.sin_addr.s_addr == inet_addr(host);
}

static void *serve(void *given)
{
	static const struct error full = {-EBUSY, "this node serves 256 connections", ""};
	const struct server server = {.source = &source, .program = "fake"};
	const int fd = (int)(intptr_t)given;
	struct serve_report report = {0};

	is_fast = is_to(fd, FAKE_FAST);
	is_next = lies(LIE_CHAIN) && is_to(fd, FAKE_NEXT);
	is_empty = !is_fast && !is_next && !is_to(fd, "127.0.0.1");
	/* The first one is the offer's, and in the second one pieces come. */
	if (!is_empty && (lies(LIE_CUT) || (lies(LIE_RESTART) && atomic_load(&fake.peer->connections) > 1))) {
		close(fd);
		atomic_fetch_add(&fake.peer->connections, 1);
		return NULL;
	}
	if (link_accept(fake.peer->keys, fd, LINK_HANDSHAKE_MS, &own_link, &error) < 0)
		return NULL;
	if (!is_empty && lies(LIE_FULL))
		serve_refuse(own_link, &full);
	else if (by_hand())
		answer_all();
	else
		serve_link(&server, own_link, &report, &error);
	own_link = link_close(own_link);
	if (!is_fast && (asked || !report.program[0]))
		atomic_fetch_add(is_empty ? &fake.peer->empty_connections : &fake.peer->connections, 1);
	return NULL;
}

static void *serve_all(void *unused)
{
	struct pollfd wait = {.fd = fake.listener, .events = POLLIN};

	while (!atomic_load(&fake.ending)) {
		int fd = poll(&wait, 1, 20) > 0 ? accept4(fake.listener, NULL, NULL, SOCK_CLOEXEC) : -1;

		if (fd < 0)
			continue;
		cr_assert_lt(fake.thread_count, CONNECTIONS_MAX);
		cr_assert_eq(
			pthread_create(&fake.threads[fake.thread_count++], NULL, serve, (void *)(intptr_t)fd),
			0);
	}
	while (fake.thread_count > 0)
		pthread_join(fake.threads[--fake.thread_count], NULL);
	return unused;
}

/* The secret lies in a memfd. */
static void make_keys(struct fake_peer *peer)
{
	struct peer_settings settings = {0};

	fake.secret = memfd_create("secret", MFD_CLOEXEC);
	cr_assert_eq(fchmod(fake.secret, 0600), 0);
	cr_assert_eq(write(fake.secret, "0123456789abcdef0123456789abcdef", 32), 32);
	snprintf(peer->secret, sizeof(peer->secret), "/proc/self/fd/%d", fake.secret);
	cr_assert_eq(peer_settings_set(&settings, "secret", peer->secret, &error), 0, "%s", error.message);
	cr_assert_eq(peer_keys_read(&settings, &peer->keys, &error), 0, "%s", error.message);
	peer_settings_clear(&settings);
}

void fake_peer_begin(struct fake_peer *peer)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
	socklen_t bytes = sizeof(address);

	signal(SIGPIPE, SIG_IGN); /* as the loader does */
	fake.peer = peer;
	make_version();
	make_keys(peer);
	fake.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(fake.listener, (struct sockaddr *)&address, bytes), 0);
	cr_assert_eq(listen(fake.listener, 16), 0);
	cr_assert_eq(getsockname(fake.listener, (struct sockaddr *)&address, &bytes), 0);
	peer->port = ntohs(address.sin_port);
	cr_assert_eq(pthread_create(&fake.thread, NULL, serve_all, NULL), 0);
}

void fake_peer_end(struct fake_peer *peer)
{
	atomic_store(&fake.ending, true);
	pthread_join(fake.thread, NULL);
	close(fake.listener);
	close(fake.secret);
	peer_keys_release(peer->keys);
	free(fake.bytes[0]);
	free(fake.bytes[1]);
	free(fake.wrong);
	free(fake.index);
}

struct link *fake_peer_connect(const struct fake_peer *peer)
{
	const struct link_target target = {"127.0.0.1", peer->port, NULL};
	struct peer_hello_result hello;
	struct peer_message message;
	struct link *link;

	cr_assert_eq(link_connect(peer->keys, &target, LINK_HANDSHAKE_MS, &link, &error), 0, "%s",
		     error.message);
	cr_assert_eq(peer_greet(link, "test", &hello, &message, &error), 0, "%s", error.message);
	peer_message_clear(&message);
	return link;
}
