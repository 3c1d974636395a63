/* Leases that an operator kicks. */
#include "tests/support/daemon/revoked.h"

TestSuite(revoked, .init = server_open, .fini = server_close, .timeout = 120);

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
	cr_expect_eq(revoked_count(&server->work), 1);
	cr_expect_eq(quota_used(server->ledger.quota, getuid(), QUOTA_LEASES), 1,
		     "it counts while it may be mapped");
	hears_that_it_is_revoked(worker, lease);
	cr_expect_eq(release(worker, lease), 0, "the library says that it is unmapped");
	cr_expect_eq(revoked_count(&server->work), 0);
	cr_expect_eq(quota_used(server->ledger.quota, getuid(), QUOTA_LEASES), 0);
	cr_expect_eq(release(worker, lease), -ENOENT, "once");
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
		cr_expect_eq(revoked_count(&server->work), 3);
		close(one);
		close(other);
		turn();
		cr_expect_eq(revoked_count(&server->work), 3, "the process lives");
		server->work.revoked = revoked_table_free(server->work.revoked);
		server->work.revoked = revoked_table_new(&server->work);
	}
}

Test(revoked, kick_takes_one_of_three)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);

	cr_expect_eq(kick(admin, NULL, 0), -EINVAL);
	cr_expect(strstr(message.error.detail, "one of lease, pid and uid"));
	cr_expect_eq(ASK(admin, "kick", NUMBER("lease", 1), NUMBER("uid", 1)), -EINVAL);
	cr_expect_eq(kick(admin, "pid", 0), -EINVAL);
	cr_expect_eq(kick(admin, "lease", 77), -ENOENT);
	cr_expect(strstr(message.error.message, "no lease 77"), "%s", message.error.message);
	cr_expect_eq(kick(worker, "lease", 77), -EACCES);
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
	cr_expect_eq(revoked_count(&server->work), READ, "of the last one nothing can be mapped");
	while (comes(worker))
		refused += message.type == MESSAGE_RESPONSE && message.error.code == -ESTALE;
	cr_expect_eq(refused, 1);
}

Test(revoked, a_peer_that_never_reads_stays_connected)
{
	enum { MANY = 3000 };
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER), heard = 0;
	struct version *version = ready("m", "v1");

	grant_many(session_of(SESSION_WORKER), version, MANY);
	cr_assert_eq(kick(admin, "uid", getuid()), 0);
	cr_expect_eq(server->net.session_count, 2);
	while (comes(worker)) {
		struct fields f;
		uint32_t count;

		fields_of(&f, message.body);
		fields_array(&f, "leases", &count);
		cr_expect_leq(count, REVOKED_PER_PACKET);
		heard += (int)count;
	}
	cr_expect_eq(heard, MANY);
}

Test(revoked, a_user_whose_leases_are_all_revoked_hinders_no_other)
{
	int admin = greeted(SESSION_ADMIN), hoarder = greeted(SESSION_WORKER), worker;
	struct version *version = unnamed("v1");
	uint64_t lease;

	session_of(SESSION_WORKER)->peer.uid = 4000;
	grant_many(session_of(SESSION_WORKER), version, LEASES_PER_UID_MAX);
	cr_assert_eq(retire_by(admin, "m@v1", true, 0), 0, "%s", message.error.message);
	TURN_UNTIL(is_gone("v1"));
	cr_expect_eq(revoked_count(&server->work), LEASES_PER_UID_MAX);
	cr_expect_eq(quota_used(server->ledger.quota, 4000, QUOTA_LEASES), LEASES_PER_UID_MAX,
		     "the quota bounds them");
	unnamed("v2");
	worker = greeted(SESSION_WORKER);
	lease = lease_by(worker, "m@v2");
	cr_assert_eq(kick(admin, "lease", lease), 0, "%s", message.error.message);
	hears_that_it_is_revoked(worker, lease);
	lease_by(worker, "m@v2");
	cr_assert_eq(retire_by(admin, "m@v2", true, 0), 0, "%s", message.error.message);
	TURN_UNTIL(is_gone("v2"));
	cr_expect_eq(leases(), 0);
	close(hoarder);
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
	cr_expect_eq(registry_revoked_ids(server->ledger.registry, 4000), 0, "one entry, no numbers");
	worker = greeted(SESSION_WORKER);
	lease = lease_by(worker, "m");
	cr_expect_eq(kick(admin, "lease", lease), 0, "%s", message.error.message);
	close(hoarder);
}

Test(revoked, more_numbers_of_a_user_than_can_be_remembered_are_refused)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	struct version *version = ready("m", "v1");
	const uid_t uid = getuid();
	struct error error;
	uint64_t lease;

	lease_begin(server->ledger.registry, 1000000);
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
	cr_expect_eq(registry_revoked_ids(server->ledger.registry, uid), REVOKED_IDS_PER_UID_MAX);
	cr_expect_eq(kick(admin, "uid", uid), 0, "%s", message.error.message);
	cr_expect_eq(registry_revoked_ids(server->ledger.registry, uid), 0, "the numbers give room");
	cr_expect(version_lease_revoked(version, uid, lease));
	cr_expect_not(version_lease_revoked(version, uid + 1, lease), "another user's");
	cr_expect(version_lease_revoked(version, uid + 1, 500000));
}

Test(revoked, by_force_there_is_nothing_to_remember)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	struct version *version = unnamed("v1");
	struct error error;

	lease_by(worker, "m@v1");
	for (uint64_t i = 0; i < REVOKED_IDS_PER_UID_MAX; i++)
		cr_assert_eq(version_revoke_id(version, getuid(), 1000000 + i, &error), 0, "%s", error.message);
	cr_expect_eq(retire_by(admin, "m@v1", true, 0), 0, "%s", message.error.message);
	cr_expect_eq(leases(), 0);
	TURN_UNTIL(is_gone("v1"));
	cr_expect_eq(registry_revoked_ids(server->ledger.registry, getuid()), 0,
		     "numbers go with their version");
}

/* ---- resume ---- */

static int resume(int sock, const struct version_id *version, uint64_t lease, bool *ret_revoked)
{
	const msgpack_object *answers;
	struct message_writer w;
	struct error error = {0};
	struct fields f, one;
	uint32_t count;

	begin_request(&w, 9, "resume");
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
	cr_expect_eq(resume(worker, &version->id, lease_last(server->ledger.registry) + 1, &is_revoked),
		     -ENOENT);
	cr_expect_not(is_revoked);
	cr_expect_eq(leases(), 0);
	cr_expect_eq(resume(worker, &version->id, lost, &is_revoked), 0);
	cr_expect_eq(leases(), 1);
	/* The process that comes back says that it has unmapped. */
	cr_expect_eq(release(worker, kicked), 0);
	cr_expect_eq(resume(worker, &version->id, kicked, &is_revoked), -ESTALE, "for as long as it is there");
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
}
