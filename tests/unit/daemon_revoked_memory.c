/* Versions that are retired by force, and the memory that their holders still map. */
#include "tests/support/daemon/revoked.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

TestSuite(revoked_memory, .init = server_open, .fini = server_close, .timeout = 120);

Test(revoked_memory, a_version_retired_by_force_is_freed_and_its_bytes_stay_charged)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	uint64_t first, second;

	unnamed("v1");
	first = lease_by(worker, "m@v1");
	second = lease_by(worker, "m@v1");
	cr_assert_eq(retire_by(admin, "m@v1", true, 0), 0, "%s", message.error.message);
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
}

static uint64_t paid_by(uid_t uid)
{
	return quota_used(server->ledger.quota, uid, QUOTA_BYTES);
}

/* The owner can't give back what others still map. */
Test(revoked_memory, what_an_operator_took_away_is_charged_to_who_maps_it)
{
	int admin = greeted(SESSION_ADMIN), first = greeted(SESSION_WORKER), second;
	char text[256] = "";
	uint64_t leases[2];
	const uid_t owner = unnamed("v1")->owner;

	session_of(SESSION_WORKER)->peer.uid = 3001;
	leases[0] = lease_by(first, "m@v1");
	second = greeted(SESSION_WORKER);
	session_of(SESSION_WORKER)->peer.uid = 3002;
	leases[1] = lease_by(second, "m@v1");
	cr_expect_eq(paid_by(owner), 4096);
	cr_assert_eq(retire_by(admin, "m@v1", true, 0), 0, "%s", message.error.message);
	TURN_UNTIL(is_gone("v1"));
	cr_expect_eq(paid_by(owner), 0);
	cr_expect_eq(paid_by(3001) + paid_by(3002), 4096);
	cr_expect_eq(host()->by_users, 4096);
	revoked_name_mappers(&server->work, host(), text, sizeof(text));
	cr_expect(strstr(text, ", uid 3001)") && strstr(text, ", uid 3002)"), "%s", text);
	while (comes(first))
		;
	while (comes(second))
		;
	cr_expect_eq(release(first, leases[0]), 0);
	cr_expect(paid_by(3001) == 0 && paid_by(3002) == 4096);
	cr_expect_eq(release(second, leases[1]), 0);
	cr_expect(paid_by(3002) == 0 && host()->by_users == 0 && host()->used == 0);
}

Test(revoked_memory, memory_of_a_holder_without_a_pidfd_counts_until_its_session_ends)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER), pidfd;
	struct session *session = session_of(SESSION_WORKER);

	unnamed("v1");
	lease_by(worker, "m@v1");
	cr_assert_eq(retire_by(admin, "m@v1", true, 0), 0);
	TURN_UNTIL(is_gone("v1"));
	pidfd = session->peer.pidfd;
	session->peer.pidfd = -1;
	close(worker);
	TURN_UNTIL(host()->used == 0);
	cr_expect_eq(revoked_count(&server->work), 0);
	close(pidfd);
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
static void leave_revoked(int admin, pid_t pid, int pidfd, uid_t uid, int count)
{
	for (int i = 0; i < count; i++) {
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

Test(revoked_memory, connections_of_one_process_are_watched_as_one)
{
	int admin = greeted(SESSION_ADMIN), pidfds[2];
	pid_t pids[2] = {child(&pidfds[0]), child(&pidfds[1])};
	const int many = REVOKED_GONE_MAX + 8;

	ready("m", "v1");
	leave_revoked(admin, pids[0], pidfds[0], 4000, many);
	cr_expect_eq(revoked_count(&server->work), (uint64_t)many);
	leave_revoked(admin, pids[1], pidfds[1], 4000, 1);
	cr_expect_eq(revoked_count(&server->work), (uint64_t)many + 1);
	cr_expect_leq(fd_count(), fds_before + 20, "%d descriptors", fd_count() - fds_before);
	end_child(pids[0], pidfds[0]);
	TURN_UNTIL(revoked_count(&server->work) == 1);
	end_child(pids[1], pidfds[1]);
	TURN_UNTIL(revoked_count(&server->work) == 0);
}

Test(revoked_memory, one_user_has_a_quarter_of_the_watches)
{
	int admin = greeted(SESSION_ADMIN), pidfd;
	pid_t pid = child(&pidfd);

	ready("m", "v1");
	/* Of other PID namespaces it can't be told whether processes are the same. */
	leave_revoked(admin, 0, pidfd, 4000, REVOKED_GONE_PER_UID_MAX + 8);
	cr_expect_eq(revoked_count(&server->work), REVOKED_GONE_PER_UID_MAX);
	leave_revoked(admin, pid, pidfd, 4001, 1);
	cr_expect_eq(revoked_count(&server->work), REVOKED_GONE_PER_UID_MAX + 1, "another user has its own");
	end_child(pid, pidfd);
	TURN_UNTIL(revoked_count(&server->work) == 0);
}

Test(revoked_memory, a_process_that_is_gone_maps_nothing)
{
	int admin = greeted(SESSION_ADMIN), pidfd, dead;
	pid_t pid = child(&pidfd), other = child(&dead);

	ready("m", "v1");
	leave_revoked(admin, pid, pidfd, 4000, 1);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	leave_revoked(admin, pid, dead, 4000, 1);
	cr_expect_eq(revoked_count(&server->work), 1, "its number is another process's by now");
	close(dead);
	end_child(pid, pidfd);
	TURN_UNTIL(revoked_count(&server->work) == 0);
}

Test(revoked_memory, memory_of_a_process_that_lives_counts_after_its_session)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	uint64_t lease;

	unnamed("v1");
	lease = lease_by(worker, "m@v1");
	cr_assert_eq(retire_by(admin, "m@v1", true, 0), 0);
	TURN_UNTIL(is_gone("v1"));
	close(worker);
	turn();
	cr_expect_eq(host()->used, 4096);
	cr_assert_eq(ask(admin, "status"), 0);
	cr_expect_eq(answer_u64("revoked"), 1);
	cr_expect_eq(answer_u64("still_mapped"), 4096);
	worker = greeted(SESSION_WORKER);
	cr_expect_eq(release(worker, lease), 0, "the same process");
	cr_expect_eq(host()->used, 0);
}

Test(revoked_memory, pins_and_aliases_are_respected)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	struct version *version = ready("m", "v1");
	struct error error;

	cr_assert_eq(version_pin(version, "night", &error), 0);
	lease_by(worker, "m");
	cr_expect_eq(retire_by(admin, "m@v1", true, 0), -EBUSY);
	cr_expect(strstr(message.error.detail, "unpin first: night"), "%s", message.error.detail);
	cr_assert_eq(version_unpin(version, "night", &error), 0);
	cr_expect_eq(retire_by(admin, "m@v1", true, 0), -EBUSY);
	cr_expect(strstr(message.error.detail, "current"), "%s", message.error.detail);
	cr_expect_eq(leases(), 1);
	cr_expect_eq(version->state, VERSION_READY);
	cr_expect_eq(retire_by(admin, "m@v1", false, 5), -EINVAL, "after_ms goes with force");
	cr_expect_eq(retire_by(admin, "m@v1", true, FORCE_AFTER_MS_MAX + 1), -EINVAL);
}

Test(revoked_memory, who_leaves_in_time_is_not_revoked)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	uint64_t lease;

	unnamed("v1");
	lease = lease_by(worker, "m@v1");
	cr_assert_eq(retire_by(admin, "m@v1", true, 60000), 0);
	cr_expect_eq(leases(), 1);
	cr_expect_eq(release(worker, lease), 0);
	TURN_UNTIL(is_gone("v1"));
	cr_expect_eq(host()->used, 0);
	cr_expect_not(comes(worker), "nothing was revoked");
}

Test(revoked_memory, who_stays_is_revoked_when_the_time_is_over)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	struct version *version = unnamed("v1");
	uint64_t lease;

	lease = lease_by(worker, "m@v1");
	cr_assert_eq(retire_by(admin, "m@v1", true, 60000), 0);
	cr_assert_gt(version->force_at_ms, 1700000000000);
	cr_assert_eq(retire_by(admin, "m@v1", false, 0), 0, "the time stays");
	cr_assert_eq(retire_by(admin, "m@v1", true, 30), 0, "it counts anew");
	TURN_UNTIL(is_gone("v1"));
	cr_expect_eq(host()->still_mapped, 4096);
	hears_that_it_is_revoked(worker, lease);
}

/* As after a restart, at which the time was over or not. */
Test(revoked_memory, the_time_of_a_version_goes_on_after_a_restart)
{
	int admin = greeted(SESSION_ADMIN);
	struct version *version = unnamed("v1");

	unnamed("v2");
	cr_assert_eq(registry_retire(server->ledger.registry, version, NULL), 0);
	version->force_at_ms = 5;
	versions_force_begin(&server->work);
	cr_expect(version->forced, "nobody gets a lease of it again, from the first request on");
	TURN_UNTIL(is_gone("v1"));
	cr_expect_not(is_gone("v2"));
	close(admin);
}
