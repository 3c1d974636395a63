/* Descriptors that peers leave unread: how many gpuwmd lets lie, whom they count for, and who waits. */
#include "daemon/net/unread.h"
#include "tests/support/any/open_files.h"
#include "tests/support/daemon/server.h"

#include <sys/resource.h>

/* The kernel lets an ordinary user have as many descriptors in flight as open files. */
static void begin(void)
{
	open_files_raise();
	server_open();
}

TestSuite(session_unread, .init = begin, .fini = server_close, .timeout = 120);

/* Replies of two descriptors that may lie unread. */
#define UNREAD_REPLIES (UNREAD_FDS_MAX / 2)

/* ---- descriptors that a user's connections leave unread ---- */

/* A user alone has half. */
#define LEAVING (UNREAD_FDS_ALL_MAX / 2 / UNREAD_FDS_MAX)

/* Connections that leave as many unread as each may: all that the user may leave. */
static void leave_unread(int socks[LEAVING])
{
	ready("m", "v1");
	for (size_t i = 0; i < LEAVING; i++) {
		socks[i] = greeted(SESSION_WORKER);
		for (uint64_t id = 0; id < UNREAD_REPLIES; id++)
			send_get(socks[i], id, "m", 0);
	}
	TURN_UNTIL(leases() == LEAVING * UNREAD_REPLIES);
	cr_assert_eq(unread_count(server->net.unread, getuid()), UNREAD_FDS_ALL_MAX / 2);
}

static void read_all(int sock)
{
	for (uint64_t id = 0; id < UNREAD_REPLIES; id++)
		cr_assert(comes(sock));
}

Test(session_unread, what_one_users_connections_leave_unread_is_bounded)
{
	int socks[LEAVING], one;

	leave_unread(socks);
	one = greeted(SESSION_WORKER);
	send_get(one, 9, "m", 0);
	cr_expect_not(comes(one), "the kernel would refuse everybody's at some point");
	read_all(socks[7]);
	TURN_UNTIL(comes(one));
	cr_expect_eq(message.id, 9);
	cr_expect_eq(packet.fd_count, 2);
	for (size_t i = 0; i < LEAVING; i++)
		close(socks[i]);
	close(one);
	TURN_UNTIL(server->net.session_count == 0);
	cr_expect_eq(unread_count(server->net.unread, getuid()), 0);
}

Test(session_unread, operators_do_not_wait_for_what_workers_leave_unread)
{
	int socks[LEAVING], operator;

	leave_unread(socks);
	operator= greeted(SESSION_ADMIN);
	send_get(operator, 9, "m", 0);
	cr_expect_eq(answered(operator), 0);
	for (size_t i = 0; i < LEAVING; i++)
		close(socks[i]);
	close(operator);
	TURN_UNTIL(server->net.session_count == 0);
}

/* A connection whose reply lies unread, and which gpuwmd ends then. */
static int end_unread(void (*provoke)(int sock))
{
	int sock = greeted(SESSION_WORKER);

	send_get(sock, 1, "m", 0);
	TURN_UNTIL(leases() == 1);
	provoke(sock);
	TURN_UNTIL(server->net.session_count == 0);
	turn();
	cr_expect_eq(unread_count(server->net.unread, getuid()), 2);
	cr_expect_eq(quota_used(server->ledger.quota, getuid(), QUOTA_SESSIONS), 1,
		     "it may not do so again and again");
	return sock;
}

static void send_nonsense(int sock)
{
	cr_assert_eq(send(sock, "\xc1", 1, 0), 1);
}

static void send_no_more(int sock)
{
	cr_assert_eq(shutdown(sock, SHUT_WR), 0);
}

static void shut_down(int sock)
{
	cr_assert_eq(shutdown(sock, SHUT_RDWR), 0);
}

static void is_given_back(void)
{
	turn();
	cr_expect_eq(unread_count(server->net.unread, getuid()), 0);
	cr_expect_eq(quota_used(server->ledger.quota, getuid(), QUOTA_SESSIONS), 0);
	cr_expect_eq(unread_leftovers(server->net.unread), 0);
}

/* The kernel counts them until the peer has read or closed, whatever gpuwmd and the peer do besides. */
Test(session_unread, that_ended_still_counts_for_what_lies_unread)
{
	void (*const ways[])(int sock) = {send_nonsense, send_no_more, shut_down};

	ready("m", "v1");
	for (size_t i = 0; i < 3; i++) {
		close(end_unread(ways[i]));
		is_given_back();
	}
}

Test(session_unread, that_ended_no_longer_counts_when_its_peer_has_read)
{
	int sock;

	ready("m", "v1");
	sock = end_unread(send_nonsense);
	cr_assert(comes(sock));
	cr_assert(comes(sock));
	is_given_back();
	close(sock);
}

/* They are descriptors of gpuwmd too. */
Test(session_unread, that_ended_and_lies_unread_counts_among_all_sessions)
{
	int sock, other;

	ready("m", "v1");
	sock = end_unread(send_no_more);
	config.sessions = 1;
	other = connect_as(SESSION_WORKER);
	cr_expect_eq(answered(other), -EDQUOT);
	close(sock);
	close(other);
	turn();
	other = greeted(SESSION_WORKER);
}

Test(session_unread, whose_waiting_reply_is_withdrawn_is_not_in_the_way)
{
	int socks[LEAVING], one, admin = greeted(SESSION_ADMIN);
	struct session *crowded;

	leave_unread(socks);
	one = greeted(SESSION_WORKER);
	crowded = server->net.sessions;
	send_get(one, 9, "m", 0);
	TURN_UNTIL(crowded->prev_crowded);
	cr_expect_eq(ASK(admin, "kick", NUMBER("lease", crowded->client->leases->id)), 0, "%s",
		     message.error.message);
	cr_expect_null(crowded->out);
	cr_expect_null(crowded->prev_crowded);
	cr_expect_eq(crowded->crowded_since, 0);
	for (size_t i = 0; i < LEAVING; i++)
		close(socks[i]);
	close(one);
	close(admin);
	TURN_UNTIL(server->net.session_count == 0);
}

/* ---- too many descriptors in flight ---- */

#define CROWD 6

/* The kernel counts what a user without privileges has in flight against RLIMIT_NOFILE, in all of the user's processes:
 * clients that do not read fill it up. So each process that runs a test is a user of its own. */
static void crowd(int socks[CROWD])
{
	const uid_t uid = 10000 + (uid_t)getpid() % 50000;
	struct rlimit limit = {.rlim_cur = 128, .rlim_max = 128};

	if (geteuid() != 0)
		cr_skip_test("only root can become a user who has nothing in flight");
	ready_with("m", "v1", 31);
	for (int i = 0; i < CROWD; i++)
		socks[i] = greeted(SESSION_WORKER);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	cr_assert_eq(setgid(uid) | setuid(uid), 0);
	for (int i = 0; i < CROWD; i++)
		send_get(socks[i], 2, "m", 0);
}

/* The one whose reply could not go: no packet is there, and none was dropped. */
static int crowded_out(const int socks[CROWD])
{
	char byte;

	turn();
	for (int i = 0; i < CROWD; i++) {
		if (recv(socks[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0)
			return i;
	}
	return -1;
}

Test(session_unread, descriptors_wait_for_others_to_read)
{
	int socks[CROWD], late;

	crowd(socks);
	late = crowded_out(socks);
	cr_assert_geq(late, 0, "the kernel refused none");
	cr_assert_eq(leases(), CROWD);
	for (int i = 0; i < CROWD; i++) {
		cr_assert_eq(answered_later(socks[(late + 1 + i) % CROWD]), 0);
		cr_assert_eq(packet.fd_count, 32);
	}
	cr_assert_eq(leases(), CROWD);
	for (int i = 0; i < CROWD; i++)
		close(socks[i]);
}

Test(session_unread, descriptors_are_given_up_when_nobody_reads)
{
	int socks[CROWD], late;

	crowd(socks);
	late = crowded_out(socks);
	cr_assert_geq(late, 0, "the kernel refused none");
	cr_assert_eq(answered_later(socks[late]), -ETOOMANYREFS);
	cr_assert_eq(leases(), CROWD - 1);
	cr_assert_eq(ask(socks[late], "ping"), 0);
	for (int i = 0; i < CROWD; i++)
		close(socks[i]);
}
