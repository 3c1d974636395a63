/* How gpuwmd tells of revoked leases. */
#include "tests/support/daemon/revoked.h"

TestSuite(revoked_told, .init = server_open, .fini = server_close, .timeout = 120);

/* An event that was received: its count, and how many leases it lists. */
static uint64_t revoked_told(uint64_t *ret_first, uint32_t *ret_listed)
{
	const msgpack_object *ids;
	struct fields f;

	cr_assert_str_eq(answer_text("kind"), "revoked");
	fields_of(&f, message.body);
	ids = fields_array(&f, "leases", ret_listed);
	cr_assert_gt(*ret_listed, 0);
	*ret_first = ids[0].via.u64;
	return answer_u64("count");
}

Test(revoked_told, subscribers_are_told_of_the_time_and_of_leases)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER), other = greeted(SESSION_WORKER);
	uint64_t lease, first;
	uint32_t listed;

	unnamed("v1");
	lease = lease_by(worker, "m@v1");
	cr_assert_eq(ask(other, "subscribe"), 0);
	cr_assert_eq(retire_by(admin, "m@v1", true, 0), 0);
	cr_assert(comes(other));
	cr_expect_str_eq(answer_text("kind"), "version_retiring");
	cr_expect_eq(answer_u64("force_in_ms"), 0);
	cr_assert(comes(other));
	cr_expect_eq(revoked_told(&first, &listed), 1);
	cr_expect_eq(first, lease);
	cr_expect_eq(listed, 1);
	cr_expect_eq(answer_u64("pid"), (uint64_t)getpid());
	cr_expect_str_eq(answer_text("tag"), "v1");
	cr_expect(strstr(answer_text("reason"), "by force"));
	TURN_UNTIL(is_gone("v1"));
}

Test(revoked_told, subscribers_hear_when_leases_will_be_revoked)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER), other = greeted(SESSION_WORKER);

	unnamed("v1");
	lease_by(worker, "m@v1");
	cr_assert_eq(ask(other, "subscribe"), 0);
	cr_assert_eq(retire_by(admin, "m@v1", true, 600000), 0);
	cr_assert(comes(other));
	cr_expect_str_eq(answer_text("kind"), "version_retiring");
	cr_expect_eq(answer_u64("force_in_ms"), 600000);
}

Test(revoked_told, a_holder_of_many_leases_is_one_event_for_each_version)
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
	cr_assert_eq(ask(other, "subscribe"), 0);
	before = event_last(server->ledger.events);
	for (int round = 0; round < 2; round++) {
		cr_assert_eq(kick(admin, "uid", getuid()), 0, "%s", message.error.message);
		cr_expect_eq(event_last(server->ledger.events), before + 3, "with the audit's");
		for (int i = 0; i < 2; i++) {
			cr_assert(comes_beside_audit(other));
			cr_expect_eq(revoked_told(&first, &listed), round ? 1 : MANY / 2);
			cr_expect_eq(listed, round ? 1 : REVOKED_PER_EVENT);
			cr_expect(round || first == lease[0] || first == lease[1]);
		}
		before += 3;
		grant_many(session_of(SESSION_WORKER), versions[0], 1);
		grant_many(session_of(SESSION_WORKER), versions[1], 1);
	}
	close(worker);
}

Test(revoked_told, leases_of_before_do_not_share_numbers_with_those_of_now)
{
	int worker = greeted(SESSION_WORKER);

	ready("m", "v1");
	lease_begin(server->ledger.registry, UINT64_C(3) << EVENT_EPOCH_SHIFT);
	cr_expect_eq(lease_by(worker, "m"), (UINT64_C(3) << EVENT_EPOCH_SHIFT) + 1);
}

Test(revoked_told, clients_tell_what_is_revoked_and_who_has_gone)
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
	cr_assert_eq(ask(admin, "clients"), 0);
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
}
