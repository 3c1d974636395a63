/* Leases that an operator revokes, and what becomes of their memory. The peer of every connection is this process. */
#include "daemon/registry_internal.h"
#include "daemon/revoked.h"
#include "daemon_server.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

TestSuite(revoked, .init = server_open, .fini = server_close, .timeout = 120);

static struct device *host(void)
{
	return device_find(&server->devices, DEVICE_HOST);
}

static uint64_t lease_by(int sock, const char *ref)
{
	uint64_t lease;

	send_get(sock, 5, ref, 0);
	cr_assert_eq(answered(sock), 0, "%s", message.error.message);
	lease = answer_u64("lease");
	forget();
	return lease;
}

static void send_kick(int admin, const char *key, uint64_t number)
{
	struct message_writer w;

	begin_request(&w, 6, METHOD_KICK);
	if (key)
		message_put_u64(&w, key, number);
	send_request(admin, &w);
}

static int kick(int admin, const char *key, uint64_t number)
{
	send_kick(admin, key, number);
	return answered(admin);
}

static int release(int sock, uint64_t lease)
{
	struct message_writer w;

	begin_request(&w, 7, METHOD_RELEASE);
	message_put_u64(&w, "lease", lease);
	send_request(sock, &w);
	return answered(sock);
}

static int retire(int admin, const char *ref, bool force, uint64_t after_ms)
{
	struct message_writer w;

	begin_request(&w, 8, METHOD_RETIRE);
	message_put_text(&w, "ref", ref);
	message_put_bool(&w, "force", force);
	message_put_u64(&w, "after_ms", after_ms);
	send_request(admin, &w);
	return answered(admin);
}

/* What gpuwmd says unasked of a lease of this connection. */
static void hears_that_it_is_revoked(int sock, uint64_t lease)
{
	const msgpack_object *ids;
	struct fields f;
	uint32_t count;

	cr_assert(comes(sock), "nothing is said");
	cr_assert_eq(message.type, MESSAGE_NOTIFICATION);
	cr_assert_str_eq(message.method, NOTIFY_REVOKED);
	fields_of(&f, message.body);
	ids = fields_array(&f, "leases", &count);
	cr_assert_eq(count, 1);
	cr_expect_eq(ids[0].via.u64, lease);
	cr_expect(strstr(answer_text("reason"), "an operator"));
}

/* A version without aliases, so that it can be retired. */
static struct version *unnamed(const char *tag)
{
	struct version *version = ready("m", tag);

	registry_remove_aliases(server->registry);
	return version;
}

static bool is_gone(const char *tag)
{
	struct ref ref = {0};
	struct version *found;
	uint64_t generation;

	snprintf(ref.model, sizeof(ref.model), "m");
	snprintf(ref.name, sizeof(ref.name), "%s", tag);
	return registry_find(server->registry, &ref, &found, &generation, NULL) < 0;
}

static struct session *session_of(enum session_kind kind)
{
	struct session *session = server->sessions;

	while (session->kind != kind)
		session = session->next;
	return session;
}

static void grant_many(struct session *session, struct version *version, uint64_t count)
{
	struct lease *lease;
	struct error error;

	for (uint64_t i = 0; i < count; i++)
		cr_assert_eq(lease_grant(server->registry, version, 0, session, &session->leases, server->quota,
					 session->peer.uid, &lease, &error),
			     0, "%s", error.message);
}

/* ---- kick ---- */

Test(revoked, a_kicked_lease_ends_and_its_holder_hears_of_it)
{
	int worker, admin;
	uint64_t lease;

	ready("m", "v1");
	worker = greeted(SESSION_WORKER);
	admin = greeted(SESSION_ADMIN);
	lease = lease_by(worker, "m");
	cr_assert_eq(kick(admin, "lease", lease), 0, "%s", message.error.message);
	cr_expect_eq(leases(), 0);
	cr_expect_eq(revoked_count(server), 1);
	cr_expect_eq(quota_used(server->quota, getuid(), QUOTA_LEASES), 1, "it counts while it may be mapped");
	hears_that_it_is_revoked(worker, lease);
	cr_expect_eq(release(worker, lease), 0, "the library says that it is unmapped");
	cr_expect_eq(revoked_count(server), 0);
	cr_expect_eq(quota_used(server->quota, getuid(), QUOTA_LEASES), 0);
	cr_expect_eq(release(worker, lease), -ENOENT, "once");
	close(worker);
	close(admin);
}

Test(revoked, kicks_by_process_and_user_take_all_of_theirs)
{
	static const char *const keys[] = {"pid", "uid"};
	int one, other, admin = greeted(SESSION_ADMIN);

	ready("m", "v1");
	for (int i = 0; i < 2; i++) {
		one = greeted(SESSION_WORKER);
		other = greeted(SESSION_WORKER);
		lease_by(one, "m");
		lease_by(one, "m");
		lease_by(other, "m");
		cr_expect_eq(kick(admin, keys[i], 4000000), -ENOENT, "%s", message.error.message);
		cr_expect_eq(leases(), 3);
		cr_assert_eq(kick(admin, keys[i], i ? getuid() : (uint64_t)getpid()), 0);
		cr_expect_eq(leases(), 0);
		cr_expect_eq(revoked_count(server), 3);
		close(one);
		close(other);
		turn();
		cr_expect_eq(revoked_count(server), 3, "the process lives");
		server->revoked = revoked_table_free(server->revoked);
		server->revoked = revoked_table_new(server);
	}
	close(admin);
}

Test(revoked, kick_takes_one_of_three)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	struct message_writer w;

	cr_expect_eq(kick(admin, NULL, 0), -EINVAL);
	cr_expect(strstr(message.error.detail, "one of lease, pid and uid"));
	begin_request(&w, 6, METHOD_KICK);
	message_put_u64(&w, "lease", 1);
	message_put_u64(&w, "uid", 1);
	send_request(admin, &w);
	cr_expect_eq(answered(admin), -EINVAL);
	cr_expect_eq(kick(admin, "pid", 0), -EINVAL);
	cr_expect_eq(kick(admin, "lease", 77), -ENOENT);
	cr_expect(strstr(message.error.message, "no lease 77"), "%s", message.error.message);
	cr_expect_eq(kick(worker, "lease", 77), -EACCES);
	close(admin);
	close(worker);
}

Test(revoked, a_lease_is_kicked_once)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	uint64_t lease;

	ready("m", "v1");
	lease = lease_by(worker, "m");
	cr_assert_eq(kick(admin, "lease", lease), 0);
	cr_expect_eq(kick(admin, "lease", lease), -ENOENT);
	cr_expect(strstr(message.error.message, "revoked already"), "%s", message.error.message);
	close(admin);
	close(worker);
}

/* Its answer waits for the peer to read, and must not go out with descriptors that are closed by then. */
Test(revoked, what_was_not_sent_yet_is_refused)
{
	enum { READ = 8 };
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER), refused = 0;

	ready("m", "v1");
	for (uint64_t i = 0; i <= READ; i++) { /* two descriptors each, 16 may lie unread */
		send_get(worker, 10 + i, "m", 0);
		turn();
	}
	cr_assert_eq(leases(), READ + 1);
	cr_assert_eq(kick(admin, "uid", getuid()), 0);
	cr_expect_eq(leases(), 0);
	cr_expect_eq(revoked_count(server), READ, "of the last one nothing can be mapped");
	while (comes(worker))
		refused += message.type == MESSAGE_RESPONSE && message.error.code == -ESTALE;
	cr_expect_eq(refused, 1);
	close(admin);
	close(worker);
}

Test(revoked, a_peer_that_never_reads_stays_connected)
{
	enum { MANY = 3000 };
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER), heard = 0;
	struct version *version = ready("m", "v1");

	grant_many(session_of(SESSION_WORKER), version, MANY);
	cr_assert_eq(kick(admin, "uid", getuid()), 0);
	cr_expect_eq(server->session_count, 2);
	while (comes(worker)) {
		struct fields f;
		uint32_t count;

		fields_of(&f, message.body);
		fields_array(&f, "leases", &count);
		cr_expect_leq(count, REVOKED_PER_PACKET);
		heard += (int)count;
	}
	cr_expect_eq(heard, MANY);
	close(admin);
	close(worker);
}

Test(revoked, a_user_whose_leases_are_all_revoked_hinders_no_other)
{
	int admin = greeted(SESSION_ADMIN), hoarder = greeted(SESSION_WORKER), worker;
	struct version *version = unnamed("v1");
	uint64_t lease;

	session_of(SESSION_WORKER)->peer.uid = 4000;
	grant_many(session_of(SESSION_WORKER), version, LEASES_PER_UID_MAX);
	cr_assert_eq(retire(admin, "m@v1", true, 0), 0, "%s", message.error.message);
	TURN_UNTIL(is_gone("v1"));
	cr_expect_eq(revoked_count(server), LEASES_PER_UID_MAX);
	cr_expect_eq(quota_used(server->quota, 4000, QUOTA_LEASES), LEASES_PER_UID_MAX,
		     "the quota bounds them");
	unnamed("v2");
	worker = greeted(SESSION_WORKER);
	lease = lease_by(worker, "m@v2");
	cr_assert_eq(kick(admin, "lease", lease), 0, "%s", message.error.message);
	hears_that_it_is_revoked(worker, lease);
	lease_by(worker, "m@v2");
	cr_assert_eq(retire(admin, "m@v2", true, 0), 0, "%s", message.error.message);
	TURN_UNTIL(is_gone("v2"));
	cr_expect_eq(leases(), 0);
	close(admin);
	close(hoarder);
	close(worker);
}

/* ---- the log ---- */

static int stderr_before, log_pipe[2];

static void log_catch(void)
{
	fflush(stderr);
	stderr_before = dup(STDERR_FILENO);
	cr_assert_eq(pipe(log_pipe), 0);
	dup2(log_pipe[1], STDERR_FILENO);
	close(log_pipe[1]);
	log_init(LOG_LEVEL_INFO);
}

static const char *log_caught(void)
{
	static char text[4096];
	ssize_t n;

	dup2(stderr_before, STDERR_FILENO);
	close(stderr_before);
	n = read(log_pipe[0], text, sizeof(text) - 1);
	cr_assert_geq(n, 0);
	close(log_pipe[0]);
	text[n] = '\0';
	return text;
}

Test(revoked, the_log_names_the_operator_and_who_is_kicked)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	char expected[256];
	const char *text;

	ready("m", "v1");
	lease_by(worker, "m");
	lease_by(worker, "m");
	session_of(SESSION_ADMIN)->peer.uid = 4007;
	log_catch();
	cr_expect_eq(kick(admin, "pid", (uint64_t)getpid()), 0);
	text = log_caught();
	snprintf(
		expected, sizeof(expected),
		"gpuwmd: info: uid 4007 kicked pid %d (daemon_revoked, pid %d, uid %u): 2 leases are revoked\n",
		(int)getpid(), (int)getpid(), (unsigned)getuid());
	cr_expect_str_eq(text, expected, "one line, not one for each lease: %s", text);
	close(admin);
	close(worker);
}

Test(revoked, the_log_names_who_retires_by_force)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	const char *text;

	unnamed("v1");
	lease_by(worker, "m@v1");
	session_of(SESSION_ADMIN)->peer.uid = 4007;
	log_catch();
	cr_expect_eq(retire(admin, "m@v1", true, 0), 0);
	text = log_caught();
	cr_expect_str_eq(
		text,
		"gpuwmd: info: uid 4007 retires m@v1 by force: 1 leases hold it, which are revoked in 0 ms\n",
		"%s", text);
	TURN_UNTIL(is_gone("v1"));
	close(admin);
	close(worker);
}

/* ---- what is remembered for resume ---- */

Test(revoked, a_user_with_more_leases_than_numbers_are_remembered_is_kicked)
{
	int admin = greeted(SESSION_ADMIN), hoarder = greeted(SESSION_WORKER), worker;
	struct version *version = ready("m", "v1");
	uint64_t lease;

	session_of(SESSION_WORKER)->peer.uid = 4000;
	for (int i = 0; i < 2; i++) {
		grant_many(session_of(SESSION_WORKER), version, REVOKED_IDS_PER_UID_MAX + 1);
		cr_assert_eq(kick(admin, "uid", 4000), 0, "%s", message.error.message);
		cr_expect_eq(leases(), 0);
	}
	cr_expect_eq(registry_revoked_ids(server->registry, 4000), 0, "one entry, no numbers");
	worker = greeted(SESSION_WORKER);
	lease = lease_by(worker, "m");
	cr_expect_eq(kick(admin, "lease", lease), 0, "%s", message.error.message);
	close(admin);
	close(hoarder);
	close(worker);
}

Test(revoked, more_numbers_of_a_user_than_can_be_remembered_are_refused)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	struct version *version = ready("m", "v1");
	const uid_t uid = getuid();
	struct error error;
	uint64_t lease;

	lease_begin(server->registry, 1000000);
	lease = lease_by(worker, "m");
	lease_by(worker, "m");
	for (uint64_t i = 0; i < REVOKED_IDS_PER_UID_MAX - 1; i++) {
		cr_assert_eq(version_revoke_id(version, uid, 1 + i, &error), 0, "%s", error.message);
		cr_assert_eq(version_revoke_id(version, uid + 1, 500000 + i, &error), 0, "%s", error.message);
	}
	cr_expect_eq(kick(admin, "pid", (uint64_t)getpid()), -EDQUOT);
	cr_expect(strstr(message.error.message, "at most 8192 of a user"), "%s", message.error.message);
	cr_expect(strstr(message.error.detail, "gpuwmctl kick --uid "), "%s", message.error.detail);
	cr_expect_eq(leases(), 2, "nothing was done, though there is room for one");
	cr_expect_eq(kick(admin, "lease", lease), 0, "%s", message.error.message);
	cr_expect_eq(registry_revoked_ids(server->registry, uid), REVOKED_IDS_PER_UID_MAX);
	cr_expect_eq(kick(admin, "uid", uid), 0, "%s", message.error.message);
	cr_expect_eq(registry_revoked_ids(server->registry, uid), 0, "the numbers give room");
	cr_expect(version_lease_revoked(version, uid, lease));
	cr_expect_not(version_lease_revoked(version, uid + 1, lease), "another user's");
	cr_expect(version_lease_revoked(version, uid + 1, 500000));
	close(admin);
	close(worker);
}

Test(revoked, by_force_there_is_nothing_to_remember)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	struct version *version = unnamed("v1");
	struct error error;

	lease_by(worker, "m@v1");
	for (uint64_t i = 0; i < REVOKED_IDS_PER_UID_MAX; i++)
		cr_assert_eq(version_revoke_id(version, getuid(), 1000000 + i, &error), 0, "%s", error.message);
	cr_expect_eq(retire(admin, "m@v1", true, 0), 0, "%s", message.error.message);
	cr_expect_eq(leases(), 0);
	TURN_UNTIL(is_gone("v1"));
	cr_expect_eq(registry_revoked_ids(server->registry, getuid()), 0, "numbers go with their version");
	close(admin);
	close(worker);
}

/* ---- resume ---- */

static int resume(int sock, const struct version_id *version, uint64_t lease, bool *ret_revoked)
{
	const msgpack_object *answers;
	struct message_writer w;
	struct error error = {0};
	struct fields f, one;
	uint32_t count;

	begin_request(&w, 9, METHOD_RESUME);
	message_begin_array(&w, "leases");
	message_begin_map(&w, NULL);
	message_put_hex128(&w, "version", version->bytes);
	message_put_text(&w, "device", DEVICE_HOST);
	message_put_u64(&w, "rank", 0);
	message_put_u64(&w, "lease", lease);
	message_end(&w);
	message_end(&w);
	send_request(sock, &w);
	cr_assert_eq(answered(sock), 0);
	fields_of(&f, message.body);
	answers = fields_array(&f, "leases", &count);
	cr_assert_eq(count, 1);
	fields_of(&one, answers);
	fields_error(&one, "error", &error);
	*ret_revoked = fields_bool_or(&one, "revoked", false);
	return error.code;
}

Test(revoked, a_kicked_lease_is_not_resumed_and_one_that_never_was_neither)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	struct version *version = ready("m", "v1");
	uint64_t lost = lease_by(worker, "m"), kicked = lease_by(worker, "m");
	bool is_revoked;

	cr_assert_eq(kick(admin, "lease", kicked), 0);
	close(worker);
	turn();
	worker = greeted(SESSION_WORKER);
	cr_expect_eq(resume(worker, &version->id, kicked, &is_revoked), -ESTALE);
	cr_expect(is_revoked);
	cr_expect_eq(resume(worker, &version->id, 0, &is_revoked), -ENOENT);
	cr_expect_eq(resume(worker, &version->id, lease_last(server->registry) + 1, &is_revoked), -ENOENT);
	cr_expect_not(is_revoked);
	cr_expect_eq(leases(), 0);
	cr_expect_eq(resume(worker, &version->id, lost, &is_revoked), 0);
	cr_expect_eq(leases(), 1);
	/* The process that comes back says that it has unmapped. */
	cr_expect_eq(release(worker, kicked), 0);
	cr_expect_eq(resume(worker, &version->id, kicked, &is_revoked), -ESTALE, "for as long as it is there");
	close(admin);
	close(worker);
}

/* Those too that were without a connection at that moment. */
Test(revoked, of_a_kicked_user_no_lease_of_before_is_resumed)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER), away = greeted(SESSION_WORKER);
	struct version *version = ready("m", "v1");
	uint64_t lost = lease_by(away, "m"), kicked = lease_by(worker, "m"), anew;
	bool is_revoked;

	close(away);
	turn();
	cr_assert_eq(kick(admin, "uid", getuid()), 0);
	hears_that_it_is_revoked(worker, kicked);
	anew = lease_by(worker, "m");
	close(worker);
	turn();
	worker = greeted(SESSION_WORKER);
	cr_expect_eq(resume(worker, &version->id, kicked, &is_revoked), -ESTALE);
	cr_expect_eq(resume(worker, &version->id, lost, &is_revoked), -ESTALE);
	cr_expect(is_revoked);
	cr_expect_eq(resume(worker, &version->id, anew, &is_revoked), 0, "it was taken after the kick");
	close(admin);
	close(worker);
}

/* ---- by force ---- */

Test(revoked, a_version_retired_by_force_is_freed_and_its_bytes_stay_charged)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	uint64_t first, second;

	unnamed("v1");
	first = lease_by(worker, "m@v1");
	second = lease_by(worker, "m@v1");
	cr_assert_eq(retire(admin, "m@v1", true, 0), 0, "%s", message.error.message);
	TURN_UNTIL(is_gone("v1"));
	cr_expect_eq(host()->used, 4096);
	cr_expect_eq(host()->still_mapped, 4096, "once, however many had it");
	unnamed("v1");
	cr_expect_eq(host()->used, 8192, "the name is free");
	while (comes(worker))
		;
	cr_expect_eq(release(worker, first), 0);
	cr_expect_eq(host()->still_mapped, 4096);
	cr_expect_eq(release(worker, second), 0);
	cr_expect_eq(host()->still_mapped, 0);
	cr_expect_eq(host()->used, 4096);
	close(admin);
	close(worker);
}

Test(revoked, memory_of_a_holder_without_a_pidfd_counts_until_its_session_ends)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER), pidfd;
	struct session *session = session_of(SESSION_WORKER);

	unnamed("v1");
	lease_by(worker, "m@v1");
	cr_assert_eq(retire(admin, "m@v1", true, 0), 0);
	TURN_UNTIL(is_gone("v1"));
	pidfd = session->peer.pidfd;
	session->peer.pidfd = -1;
	close(worker);
	TURN_UNTIL(host()->used == 0);
	cr_expect_eq(revoked_count(server), 0);
	close(pidfd);
	close(admin);
}

/* A process that lives until it is killed. */
static pid_t child(int *ret_pidfd)
{
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
		for (;;)
			pause();
	}
	*ret_pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	cr_assert_geq(*ret_pidfd, 0);
	return pid;
}

/* Connections as of this process and user, each with a revoked lease of m; they end. */
static void leave_revoked(int admin, pid_t pid, int pidfd, uid_t uid, int connections)
{
	for (int i = 0; i < connections; i++) {
		int worker = greeted(SESSION_WORKER);
		struct session *session = session_of(SESSION_WORKER);

		close(session->peer.pidfd);
		session->peer.pidfd = dup(pidfd);
		session->peer.pid = pid;
		session->peer.uid = uid;
		cr_assert_eq(kick(admin, "lease", lease_by(worker, "m")), 0, "%s", message.error.message);
		close(worker);
		turn();
	}
}

static void end_child(pid_t pid, int pidfd)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(pidfd);
}

Test(revoked, connections_of_one_process_are_watched_as_one)
{
	int admin = greeted(SESSION_ADMIN), pidfds[2];
	pid_t pids[2] = {child(&pidfds[0]), child(&pidfds[1])};
	const int many = REVOKED_GONE_MAX + 8;

	ready("m", "v1");
	leave_revoked(admin, pids[0], pidfds[0], 4000, many);
	cr_expect_eq(revoked_count(server), (uint64_t)many);
	leave_revoked(admin, pids[1], pidfds[1], 4000, 1);
	cr_expect_eq(revoked_count(server), (uint64_t)many + 1);
	cr_expect_leq(fd_count(), fds_before + 20, "%d descriptors", fd_count() - fds_before);
	end_child(pids[0], pidfds[0]);
	TURN_UNTIL(revoked_count(server) == 1);
	end_child(pids[1], pidfds[1]);
	TURN_UNTIL(revoked_count(server) == 0);
	close(admin);
}

Test(revoked, one_user_has_a_quarter_of_the_watches)
{
	int admin = greeted(SESSION_ADMIN), pidfd;
	pid_t pid = child(&pidfd);

	ready("m", "v1");
	/* Of other PID namespaces it can't be told whether processes are the same. */
	leave_revoked(admin, 0, pidfd, 4000, REVOKED_GONE_PER_UID_MAX + 8);
	cr_expect_eq(revoked_count(server), REVOKED_GONE_PER_UID_MAX);
	leave_revoked(admin, pid, pidfd, 4001, 1);
	cr_expect_eq(revoked_count(server), REVOKED_GONE_PER_UID_MAX + 1, "another user has its own");
	end_child(pid, pidfd);
	TURN_UNTIL(revoked_count(server) == 0);
	close(admin);
}

Test(revoked, a_process_that_is_gone_maps_nothing)
{
	int admin = greeted(SESSION_ADMIN), pidfd, dead;
	pid_t pid = child(&pidfd), other = child(&dead);

	ready("m", "v1");
	leave_revoked(admin, pid, pidfd, 4000, 1);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	leave_revoked(admin, pid, dead, 4000, 1);
	cr_expect_eq(revoked_count(server), 1, "its number is another process's by now");
	close(dead);
	end_child(pid, pidfd);
	TURN_UNTIL(revoked_count(server) == 0);
	close(admin);
}

Test(revoked, memory_of_a_process_that_lives_counts_after_its_session)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	uint64_t lease;

	unnamed("v1");
	lease = lease_by(worker, "m@v1");
	cr_assert_eq(retire(admin, "m@v1", true, 0), 0);
	TURN_UNTIL(is_gone("v1"));
	close(worker);
	turn();
	cr_expect_eq(host()->used, 4096);
	cr_assert_eq(ask(admin, METHOD_STATUS), 0);
	cr_expect_eq(answer_u64("revoked"), 1);
	cr_expect_eq(answer_u64("still_mapped"), 4096);
	worker = greeted(SESSION_WORKER);
	cr_expect_eq(release(worker, lease), 0, "the same process");
	cr_expect_eq(host()->used, 0);
	close(worker);
	close(admin);
}

Test(revoked, pins_and_aliases_are_respected)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	struct version *version = ready("m", "v1");
	struct error error;

	cr_assert_eq(version_pin(version, "night", &error), 0);
	lease_by(worker, "m");
	cr_expect_eq(retire(admin, "m@v1", true, 0), -EBUSY);
	cr_expect(strstr(message.error.detail, "unpin first: night"), "%s", message.error.detail);
	cr_assert_eq(version_unpin(version, "night", &error), 0);
	cr_expect_eq(retire(admin, "m@v1", true, 0), -EBUSY);
	cr_expect(strstr(message.error.detail, "current"), "%s", message.error.detail);
	cr_expect_eq(leases(), 1);
	cr_expect_eq(version->state, VERSION_READY);
	cr_expect_eq(retire(admin, "m@v1", false, 5), -EINVAL, "after_ms goes with force");
	cr_expect_eq(retire(admin, "m@v1", true, FORCE_AFTER_MS_MAX + 1), -EINVAL);
	close(admin);
	close(worker);
}

Test(revoked, who_leaves_in_time_is_not_revoked)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	uint64_t lease;

	unnamed("v1");
	lease = lease_by(worker, "m@v1");
	cr_assert_eq(retire(admin, "m@v1", true, 60000), 0);
	cr_expect_eq(leases(), 1);
	cr_expect_eq(release(worker, lease), 0);
	TURN_UNTIL(is_gone("v1"));
	cr_expect_eq(host()->used, 0);
	cr_expect_not(comes(worker), "nothing was revoked");
	close(admin);
	close(worker);
}

Test(revoked, who_stays_is_revoked_when_the_time_is_over)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	struct version *version = unnamed("v1");
	uint64_t lease;

	lease = lease_by(worker, "m@v1");
	cr_assert_eq(retire(admin, "m@v1", true, 60000), 0);
	cr_assert_gt(version->force_at_ms, 1700000000000);
	cr_assert_eq(retire(admin, "m@v1", false, 0), 0, "the time stays");
	cr_assert_eq(retire(admin, "m@v1", true, 30), 0, "it counts anew");
	TURN_UNTIL(is_gone("v1"));
	cr_expect_eq(host()->still_mapped, 4096);
	hears_that_it_is_revoked(worker, lease);
	close(admin);
	close(worker);
}

/* As after a restart, at which the time was over or not. */
Test(revoked, the_time_of_a_version_goes_on_after_a_restart)
{
	int admin = greeted(SESSION_ADMIN);
	struct version *version = unnamed("v1");

	unnamed("v2");
	cr_assert_eq(registry_retire(server->registry, version, NULL), 0);
	version->force_at_ms = 5;
	versions_force_begin(server);
	cr_expect(version->forced, "nobody gets a lease of it again, from the first request on");
	TURN_UNTIL(is_gone("v1"));
	cr_expect_not(is_gone("v2"));
	close(admin);
}

/* An event that was received: its count, and how many leases it lists. */
static uint64_t revoked_told(uint64_t *ret_first, uint32_t *ret_listed)
{
	const msgpack_object *ids;
	struct fields f;

	cr_assert_str_eq(answer_text("kind"), EVENT_REVOKED);
	fields_of(&f, message.body);
	ids = fields_array(&f, "leases", ret_listed);
	cr_assert_gt(*ret_listed, 0);
	*ret_first = ids[0].via.u64;
	return answer_u64("count");
}

Test(revoked, subscribers_are_told_of_the_time_and_of_leases)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER), other = greeted(SESSION_WORKER);
	uint64_t lease, first;
	uint32_t listed;

	unnamed("v1");
	lease = lease_by(worker, "m@v1");
	cr_assert_eq(ask(other, METHOD_SUBSCRIBE), 0);
	cr_assert_eq(retire(admin, "m@v1", true, 0), 0);
	cr_assert(comes(other));
	cr_expect_str_eq(answer_text("kind"), EVENT_RETIRING);
	cr_expect_eq(answer_u64("force_in_ms"), 0);
	cr_assert(comes(other));
	cr_expect_eq(revoked_told(&first, &listed), 1);
	cr_expect_eq(first, lease);
	cr_expect_eq(listed, 1);
	cr_expect_eq(answer_u64("pid"), (uint64_t)getpid());
	cr_expect_str_eq(answer_text("tag"), "v1");
	cr_expect(strstr(answer_text("reason"), "by force"));
	TURN_UNTIL(is_gone("v1"));
	close(admin);
	close(worker);
	close(other);
}

Test(revoked, a_holder_of_many_leases_is_one_event_for_each_version)
{
	enum { MANY = 3000 };
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER), other = greeted(SESSION_ADMIN);
	struct version *versions[] = {ready("m", "v1"), ready("m", "v2")};
	uint64_t first, before, lease[2];
	uint32_t listed;

	for (int i = 0; i < MANY; i++)
		grant_many(session_of(SESSION_WORKER), versions[i % 2], 1);
	lease[0] = versions[0]->leases->id;
	lease[1] = versions[1]->leases->id;
	cr_assert_eq(ask(other, METHOD_SUBSCRIBE), 0);
	before = event_last(server->events);
	for (int round = 0; round < 2; round++) {
		cr_assert_eq(kick(admin, "uid", getuid()), 0, "%s", message.error.message);
		cr_expect_eq(event_last(server->events), before + 2);
		for (int i = 0; i < 2; i++) {
			cr_assert(comes(other));
			cr_expect_eq(revoked_told(&first, &listed), round ? 1 : MANY / 2);
			cr_expect_eq(listed, round ? 1 : REVOKED_PER_EVENT);
			cr_expect(round || first == lease[0] || first == lease[1]);
		}
		before += 2;
		grant_many(session_of(SESSION_WORKER), versions[0], 1);
		grant_many(session_of(SESSION_WORKER), versions[1], 1);
	}
	close(admin);
	close(worker);
	close(other);
}

Test(revoked, leases_of_before_do_not_share_numbers_with_those_of_now)
{
	int worker = greeted(SESSION_WORKER);

	ready("m", "v1");
	lease_begin(server->registry, UINT64_C(3) << EVENT_EPOCH_SHIFT);
	cr_expect_eq(lease_by(worker, "m"), (UINT64_C(3) << EVENT_EPOCH_SHIFT) + 1);
	close(worker);
}

Test(revoked, clients_tell_what_is_revoked_and_who_has_gone)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	const msgpack_object *clients;
	struct fields f, one;
	uint32_t count, found = 0;

	ready("m", "v1");
	lease_by(worker, "m");
	cr_assert_eq(kick(admin, "uid", getuid()), 0);
	close(worker);
	turn();
	cr_assert_eq(ask(admin, METHOD_CLIENTS), 0);
	fields_of(&f, message.body);
	clients = fields_array(&f, "clients", &count);
	cr_assert_eq(count, 2);
	for (uint32_t i = 0; i < count; i++) {
		const msgpack_object *held;
		struct fields lease;
		uint32_t leases_of;

		fields_of(&one, &clients[i]);
		if (!fields_bool_or(&one, "ended", false))
			continue;
		held = fields_array(&one, "leases", &leases_of);
		cr_assert_eq(leases_of, 1);
		fields_of(&lease, held);
		cr_expect_gt(fields_u64(&lease, "revoked_ms"), 1700000000000);
		cr_expect_eq(fields_u64(&lease, "bytes"), 4096);
		cr_expect_not(fields_bool_or(&lease, "freed", true));
		cr_expect_eq(fields_u64(&one, "pid"), (uint64_t)getpid());
		found++;
	}
	cr_expect_eq(found, 1);
	close(admin);
}
