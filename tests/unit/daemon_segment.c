#include "daemon/work/mourning.h"
#include "tests/support/daemon/server.h"

#include <sys/syscall.h>
#include <sys/wait.h>

TestSuite(segment, .init = server_open, .fini = server_close, .timeout = 120);

static struct device *host(void)
{
	return device_find(&server->ledger.devices, DEVICE_HOST);
}

static struct shared_charge *granted(uint64_t bytes)
{
	struct budget_charge charge = {0};
	struct error error;
	struct shared_charge *shared;

	cr_assert_eq(budget_charge(host(), bytes, &charge, &error), 0);
	shared = shared_charge_new(&charge);
	cr_assert_eq(charge.bytes, 0, "the charge moved in");
	return shared;
}

/* One part of an open publish of PUBLISHER. */
#define PUBLISHER 7
static void mourn_one(int pidfd)
{
	struct shared_charge *shared = granted(4096);
	struct quota_charge charge;
	struct error error;

	cr_assert_eq(quota_charge(server->ledger.quota, PUBLISHER, QUOTA_PUBLISHES, &charge, &error), 0);
	mourn(&server->work, pidfd, &shared, 1, &charge);
	quota_release(&charge); /* where it did not move in */
}

static uint64_t open_publishes(void)
{
	return quota_used(server->ledger.quota, PUBLISHER, QUOTA_PUBLISHES);
}

static void count_done(void *data)
{
	(*(int *)data)++;
}

Test(segment, a_grant_returns_when_the_last_has_let_go)
{
	struct shared_charge *shared = granted(4096);

	shared_charge_use(shared);
	shared_charge_drop(shared);
	cr_assert_eq(host()->used, 4096);
	cr_assert_null(shared_charge_drop(shared));
	cr_assert_eq(host()->used, 0);
	cr_assert_null(shared_charge_drop(NULL));
	cr_assert_null(shared_charge_use(NULL));
}

Test(segment, closes_a_replica_and_gives_its_budget_back)
{
	int fds = fd_count(), done = 0;
	struct replica replica = {.segment_count = 2};

	replica.index.fd = memfd_create("index", MFD_CLOEXEC);
	replica.segments = calloc(2, sizeof(struct held_fd));
	replica.segments[0].fd = memfd_create("segment", MFD_CLOEXEC);
	replica.segments[1].fd = -1;
	segment_close(&server->loop, &replica, granted(4096), count_done, &done);
	cr_assert_eq(replica.index.fd, -1);
	cr_assert_null(replica.segments);
	cr_assert_eq(host()->used, 4096, "not before they are closed");
	TURN_UNTIL(done == 1);
	cr_assert_eq(host()->used, 0);
	cr_assert_eq(fd_count(), fds);
}

Test(segment, an_empty_replica_closes_too)
{
	struct replica replica = {.index.fd = -1};
	int done = 0;

	segment_close(&server->loop, &replica, NULL, count_done, &done);
	TURN_UNTIL(done == 1);
}

static pid_t sleeping_child(int *ret_pidfd)
{
	pid_t child = fork();

	if (child == 0) {
		pause();
		_exit(0);
	}
	*ret_pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	cr_assert_geq(*ret_pidfd, 0);
	return child;
}

Test(segment, a_dead_publishers_grant_returns_with_its_process)
{
	int pidfd, status;
	pid_t child = sleeping_child(&pidfd);

	mourn_one(pidfd);
	close(pidfd);
	turn();
	cr_assert_eq(host()->used, 4096);
	cr_assert_eq(open_publishes(), 1, "it counts while the memory may be held");
	kill(child, SIGKILL);
	TURN_UNTIL(host()->used == 0);
	cr_assert_eq(open_publishes(), 0);
	waitpid(child, &status, 0);
}

Test(segment, who_has_no_pidfd_is_not_mourned)
{
	mourn_one(-1);
	cr_assert_eq(host()->used, 0);
	cr_assert_eq(open_publishes(), 0);
}

Test(segment, mourning_ends_with_the_server)
{
	int pidfd, status;
	pid_t child = sleeping_child(&pidfd);

	mourn_one(pidfd);
	close(pidfd);
	mourning_end(&server->work);
	cr_assert_eq(host()->used, 0);
	cr_assert_eq(open_publishes(), 0);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
}

TestSuite(ending, .init = server_open, .timeout = 120);

Test(ending, a_server_may_end_while_it_closes_a_version)
{
	struct version *version = ready("m", "v1");
	struct error error;

	registry_remove_aliases(server->ledger.registry);
	cr_assert_eq(versions_retire(&server->work, version, &error), 0, "%s", error.message);
	server = server_free(server);
	config_clear(&config);
	cr_expect_eq(fd_count(), fds_before);
}
