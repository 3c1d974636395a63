/* Leases that wait for room, and who hears that it is wanted. */
#include "tests/support/daemon/revoked.h"
#include "daemon/work/versions/unparks.h"

TestSuite(unparks, .init = server_open, .fini = server_close, .timeout = 120);

#define ROOM ((uint64_t)600 << 10)

/* A connection of this user, who is neither operator nor observer. */
static int worker_of(uid_t uid)
{
	int sock = greeted(SESSION_WORKER);
	struct session *session = session_of(SESSION_WORKER);

	session->peer.uid = uid;
	session->client->roles = ROLE_WORKER;
	return sock;
}

static int unpark(int sock, uint64_t lease, uint64_t room)
{
	return ASK(sock, "unpark", NUMBER("lease", lease), NUMBER("room", room));
}

static int subscribed(uid_t uid)
{
	int sock = worker_of(uid);

	cr_assert_eq(ask(sock, "subscribe"), 0);
	return sock;
}

Test(unparks, room_is_wanted_from_users_who_are_awake_there)
{
	int awake, waits, holder, other;
	uint64_t has, lacks;

	ready("m", "v1");
	host()->budget = (uint64_t)1 << 20;
	awake = worker_of(5001);
	has = lease_by(awake, "m");
	cr_assert_eq(unpark(awake, has, ROOM), 0);
	cr_expect_eq(host()->rooms, ROOM);
	holder = subscribed(5001);
	other = subscribed(5003);
	waits = worker_of(5002);
	lacks = lease_by(waits, "m");
	cr_assert_eq(unpark(waits, lacks, ROOM), -ENOSPC, "%s", message.error.message);
	cr_expect_eq(unparks_count(&server->work), 1, "it keeps its place");
	cr_assert(comes(holder));
	cr_expect_str_eq(answer_text("kind"), "wanted");
	cr_expect_str_eq(answer_text("device"), "host");
	cr_expect_gt(answer_u64("bytes"), 0);
	cr_assert_eq(unpark(waits, lacks, ROOM), -ENOSPC);
	cr_expect_not(comes(holder), "it was said");
	cr_expect_not(comes(other), "it can do nothing");
	cr_assert_eq(release(awake, has), 0);
	cr_assert_eq(unpark(waits, lacks, ROOM), 0);
	cr_expect_eq(host()->rooms, ROOM);
	cr_expect_eq(quota_used(server->ledger.quota, 5002, QUOTA_BYTES), ROOM);
	cr_expect_eq(unparks_count(&server->work), 0);
	cr_assert_eq(release(waits, lacks), 0);
	cr_expect_eq(host()->rooms, 0);
}

static int unpark_in(int sock, uint64_t lease, const char *group, uint64_t leases)
{
	return ASK(sock, "unpark", NUMBER("lease", lease), NUMBER("room", ROOM / 4), TEXT("group", group),
		   NUMBER("group_leases", leases));
}

Test(unparks, a_group_is_of_one_user_and_of_one_size)
{
	int first, second, stranger;
	uint64_t has, lacks, others;

	ready("m", "v1");
	first = worker_of(5001);
	has = lease_by(first, "m");
	second = worker_of(5001);
	lacks = lease_by(second, "m");
	stranger = worker_of(5002);
	others = lease_by(stranger, "m");
	cr_assert_eq(unpark_in(first, has, "a", 2), -ENOSPC, "%s", message.error.message);
	cr_assert_eq(unpark_in(stranger, others, "a", 2), -ENOSPC, "it is another user's");
	cr_assert_eq(unpark_in(second, lacks, "a", 3), -ENOSPC, "it is of another size");
	cr_assert_eq(unpark_in(second, lacks, "b", 2), -ENOSPC, "it has another name");
	cr_expect_eq(host()->rooms, 0);
	cr_assert_eq(unpark_in(second, lacks, "a", 2), 0, "%s", message.error.message);
	cr_expect_eq(host()->rooms, 2 * (ROOM / 4), "both have it");
	cr_assert_eq(unpark_in(first, has, "a", 2), 0);
	cr_assert_eq(unpark_in(first, has, "", 2), -EINVAL);
	cr_assert_eq(unpark_in(first, has, "a", 0), -EINVAL);
	cr_assert_eq(release(first, has), 0);
	cr_assert_eq(release(second, lacks), 0);
	cr_assert_eq(release(stranger, others), 0);
	cr_expect_eq(host()->rooms, 0);
}

/* Its process goes on to take it. */
Test(unparks, room_of_a_revoked_lease_stays_until_its_process_lets_go)
{
	int admin = greeted(SESSION_ADMIN), worker;
	uint64_t lease;

	ready("m", "v1");
	worker = worker_of(5001);
	lease = lease_by(worker, "m");
	cr_assert_eq(unpark(worker, lease, ROOM), 0);
	cr_assert_eq(kick(admin, "lease", lease), 0);
	cr_expect_eq(host()->rooms, ROOM);
	while (comes(worker))
		;
	cr_assert_eq(release(worker, lease), 0);
	cr_expect_eq(host()->rooms, 0);
}
