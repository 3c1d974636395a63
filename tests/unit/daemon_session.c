#include "daemon/net/unread.h"
#include "tests/support/daemon/server.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>

TestSuite(session, .init = server_open, .fini = server_close, .timeout = 120);

Test(session, ends_with_its_socket)
{
	int sock = greeted(SESSION_WORKER);

	cr_assert_eq(server->net.session_count, 1);
	close(sock);
	turn();
	cr_assert_eq(server->net.session_count, 0);
}

Test(session, ends_with_an_empty_packet)
{
	int sock = greeted(SESSION_WORKER);

	cr_assert_eq(send(sock, "", 0, 0), 0);
	cr_assert(is_ended(sock));
}

/* A process that connects and goes, while its child keeps the connection. */
_Noreturn static void connect_and_leave(const struct sockaddr_un *address)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	if (connect(sock, (const struct sockaddr *)address, sizeof(*address)) < 0)
		_exit(1);
	if (fork() > 0)
		send(sock, "\xc0", 1, 0);
	/* Until it is killed, or the daemon closes the other end. */
	_exit((int)recv(sock, &(char){0}, 1, 0));
}

Test(session, ends_when_its_peer_dies_though_the_socket_lives)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), sock, status;
	struct session *session;
	pid_t child;

	snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "gpuwm-unit-%d", getpid());
	cr_assert_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_eq(listen(listener, 1), 0);
	child = fork();
	if (child == 0)
		connect_and_leave(&address);
	sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	cr_assert_eq(recv(sock, &(char){0}, 1, 0), 1);
	cr_assert_eq(session_new(&server->net, sock, SESSION_WORKER, &session), 0);
	close(listener);
	turn();
	cr_assert_eq(server->net.session_count, 1);
	if (session->peer.pidfd < 0)
		cr_skip_test("this kernel has no SO_PEERPIDFD");
	cr_assert_eq(session->peer.pid, child);
	kill(child, SIGKILL);
	TURN_UNTIL(server->net.session_count == 0);
	waitpid(child, &status, 0);
}

Test(session, gives_its_leases_back)
{
	int sock = greeted(SESSION_WORKER);

	ready("m", "v1");
	send_get(sock, 2, "m", 0);
	cr_assert_eq(answered(sock), 0, "%s", message.error.message);
	cr_assert_eq(leases(), 1);
	close(sock);
	turn();
	cr_assert_eq(leases(), 0);
}

Test(session, a_lease_comes_with_its_descriptors)
{
	int sock = greeted(SESSION_WORKER);

	ready("m", "v1");
	send_get(sock, 2, "m@v1", 0);
	cr_assert_eq(answered(sock), 0);
	cr_assert_eq(packet.fd_count, 2);
	cr_assert_eq(answer_u64("index"), 0);
	cr_assert_eq(answer_u64("index_bytes"), 100);
	cr_assert_str_eq(answer_text("tag"), "v1");
}

/* Replies of two descriptors that may lie unread. */
#define UNREAD_REPLIES (UNREAD_FDS_MAX / 2)

Test(session, descriptors_wait_until_the_last_ones_were_read)
{
	const uint64_t first = 10, end = first + UNREAD_REPLIES + 3;
	int sock = greeted(SESSION_WORKER);

	ready("m", "v1");
	for (uint64_t id = first; id < end; id++)
		send_get(sock, id, "m", 0);
	TURN_UNTIL(leases() > UNREAD_REPLIES);
	turn();
	/* As many as may are on their way, one waits, and no more is read from such a peer. */
	cr_assert_eq(leases(), UNREAD_REPLIES + 1);
	for (uint64_t id = first; id < end; id++) {
		cr_assert(comes(sock));
		cr_assert_eq(message.id, id);
		cr_assert_eq(packet.fd_count, 2);
	}
	cr_assert_eq(leases(), end - first);
}

Test(session, a_waiting_reply_goes_with_its_session)
{
	int sock = greeted(SESSION_WORKER);

	ready("m", "v1");
	for (uint64_t id = 0; id < UNREAD_REPLIES + 2; id++)
		send_get(sock, id, "m", 0);
	TURN_UNTIL(leases() > UNREAD_REPLIES);
	close(sock);
	turn();
	cr_assert_eq(leases(), 0);
	cr_assert_eq(server->net.session_count, 0);
}

Test(session, answers_to_who_reads_late_come_all_and_in_order)
{
	int sock = greeted(SESSION_WORKER);
	uint64_t sent = 0, got = 0;
	struct message_writer w;

	while (sent < 5000) {
		begin_request(&w, sent, "ping");
		message_end(&w);
		if (packet_send(sock, w.buffer.data, w.buffer.size, NULL, 0) == 0)
			sent++;
		else if (comes(sock))
			cr_assert_eq(message.id, got++);
		message_writer_clear(&w);
	}
	for (; got < sent; got++) {
		cr_assert(comes(sock));
		cr_assert_eq(message.id, got);
	}
}

Test(session, an_oversized_packet_is_refused_and_ends_it)
{
	static char large[PACKET_BYTES_MAX + 1];
	int sock = greeted(SESSION_WORKER);

	memcpy(large, "\x94\x00\x07", 3);
	cr_assert_eq(send(sock, large, sizeof(large), 0), (ssize_t)sizeof(large));
	cr_assert_eq(answered(sock), -EPROTO);
	cr_assert(strstr(message.error.message, "65536") || strstr(message.error.detail, "65,536"));
	cr_assert(message.has_id && message.id == 7);
	cr_assert(is_ended(sock));
}

Test(session, descriptors_of_a_worker_are_refused_and_end_it)
{
	int sock = greeted(SESSION_WORKER), fd = 0;
	struct message_writer w;

	begin_request(&w, 8, "ping");
	message_end(&w);
	cr_assert_eq(packet_send(sock, w.buffer.data, w.buffer.size, &fd, 1), 0);
	message_writer_clear(&w);
	cr_assert_eq(answered(sock), -EPROTO);
	cr_assert(strstr(message.error.detail, "checker"));
	cr_assert_eq(message.id, 8);
	cr_assert(is_ended(sock));
}

Test(session, the_last_reply_is_not_lost_behind_unread_requests)
{
	int sock = greeted(SESSION_WORKER);

	cr_assert_eq(send(sock, "\xc1", 1, 0), 1);
	for (int i = 0; i < 10; i++)
		send_plain(sock, 2, "ping");
	cr_assert_eq(answered(sock), -EPROTO);
	cr_assert(is_ended(sock));
}

Test(session, above_the_limit_is_turned_away_with_a_word)
{
	int first, second;

	config.sessions = 1;
	first = greeted(SESSION_WORKER);
	second = connect_as(SESSION_WORKER);
	cr_assert_eq(answered(second), -EDQUOT);
	cr_assert_not(message.has_id);
	cr_assert(is_ended(second));
	cr_assert_eq(ask(first, "ping"), 0);
}

Test(session, above_its_users_limit_is_turned_away)
{
	int socks[3];

	config.quota.per_uid[QUOTA_SESSIONS] = 2;
	quota_set_limits(server->ledger.quota, &config.quota);
	for (int i = 0; i < 3; i++)
		socks[i] = connect_as(SESSION_WORKER);
	cr_assert_eq(answered(socks[2]), -EDQUOT);
	cr_assert(strstr(message.error.detail, "sessions_per_uid"));
	for (int i = 0; i < 3; i++)
		close(socks[i]);
}

Test(session, descriptors_that_can_not_go_cost_their_lease_and_tell_it)
{
	int sock = greeted(SESSION_WORKER);

	ready("m", "v1");
	send_get(sock, 2, "m", 0);
	cr_assert_eq(answered(sock), 0);
	holdings_refuse(&server->work, server->net.sessions, answer_u64("lease"), 2);
	cr_assert_eq(answered(sock), -ETOOMANYREFS);
	cr_assert_eq(message.id, 2);
	cr_assert_eq(leases(), 0);
}

/* The number that its holder knows is good still. */
Test(session, an_unpark_whose_descriptors_can_not_go_leaves_the_lease_parked)
{
	int sock = greeted(SESSION_WORKER);
	uint64_t known, unknown;

	ready("m", "v1");
	send_get(sock, 2, "m", 0);
	cr_assert_eq(answered(sock), 0);
	known = answer_u64("lease");
	SEND(sock, 3, "park", NUMBER("lease", known));
	cr_assert_eq(answered(sock), 0);
	SEND(sock, 4, "unpark", NUMBER("lease", known));
	cr_assert_eq(answered(sock), 0);
	unknown = answer_u64("lease");
	cr_assert_neq(unknown, known);
	holdings_refuse(&server->work, server->net.sessions, unknown, 4);
	cr_assert_eq(answered(sock), -ETOOMANYREFS);
	cr_assert_eq(leases(), 1);
	SEND(sock, 5, "unpark", NUMBER("lease", known));
	cr_assert_eq(answered(sock), 0);
	SEND(sock, 6, "unpark", NUMBER("lease", unknown));
	cr_assert_eq(answered(sock), -ENOENT);
}

/* ---- events ---- */

static uint64_t subscribe(int sock)
{
	cr_assert_eq(ask(sock, "subscribe"), 0);
	return answer_u64("seq");
}

static void event_comes(int sock, const char *kind)
{
	const msgpack_object *map;
	struct fields f;
	char text[32];

	cr_assert(comes(sock), "no %s", kind);
	cr_assert_eq(message.type, MESSAGE_NOTIFICATION);
	map = message.body;
	fields_of(&f, map);
	fields_text(&f, "kind", text, sizeof(text));
	cr_assert_str_eq(text, kind);
}

Test(session, a_subscriber_is_told_in_order)
{
	int sock = greeted(SESSION_WORKER);

	cr_assert_eq(subscribe(sock), 0);
	ready("m", "v1");
	event_comes(sock, "version_ready");
	event_comes(sock, "swapped");
	cr_assert_not(comes(sock));
}

Test(session, a_subscriber_gets_what_is_still_kept)
{
	int sock = greeted(SESSION_WORKER);

	ready("m", "v1");
	cr_assert_eq(ASK(sock, "subscribe", NUMBER("after", 1)), 0);
	cr_assert_eq(answer_u64("seq"), 3);
	event_comes(sock, "swapped");
}

Test(session, a_subscriber_who_does_not_read_is_told_what_it_lost)
{
	int sock = greeted(SESSION_WORKER), other;
	bool lost = false;

	subscribe(sock);
	ready("m", "v1");
	for (unsigned i = 0; i < 4 * EVENTS_KEPT_MAX; i++) {
		other = greeted(SESSION_WORKER);
		send_get(other, 2, "m", 0);
		cr_assert_eq(answered(other), 0);
		close(other);
		turn();
	}
	while (comes(sock))
		lost = lost || strcmp(message.method, "lost") == 0;
	cr_assert(lost);
	cr_assert_eq(ask(sock, "ping"), 0);
}

Test(session, a_peer_lost_with_leases_is_told)
{
	int sock = greeted(SESSION_WORKER), worker = greeted(SESSION_WORKER);

	ready("m", "v1");
	send_get(worker, 2, "m", 0);
	cr_assert_eq(answered(worker), 0);
	subscribe(sock);
	close(worker);
	event_comes(sock, "peer_lost");
	cr_assert_eq(answer_u64("leases"), 1);
}

Test(session, nobody_is_admitted_without_room_for_a_pidfd)
{
	struct rlimit limit, tight;
	struct session *session;
	int pair[2], free_fd;

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	free_fd = dup(pair[0]);
	close(free_fd);
	getrlimit(RLIMIT_NOFILE, &limit);
	tight = limit;
	tight.rlim_cur = (rlim_t)free_fd;
	setrlimit(RLIMIT_NOFILE, &tight);
	/* The share's own descriptor is there already. */
	cr_assert_eq(session_new(&server->net, pair[0], SESSION_ADMIN, &session), 0);
	turn();
	setrlimit(RLIMIT_NOFILE, &limit);
	if (!comes(pair[1])) {
		close(pair[1]);
		cr_skip_test("the kernel has no SO_PEERPIDFD");
	}
	cr_expect_eq(message.error.code, -EMFILE);
	cr_expect(is_ended(pair[1]));
	close(pair[1]);
}
