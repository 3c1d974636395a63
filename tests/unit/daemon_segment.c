#include "daemon/ledger/closing.h"
#include "daemon/work/versions/publishers.h"
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

/* A part of `version` with one segment of 4,096 bytes, which is `segment`. */
static void fill(struct version *version, struct replica *part, struct segment *segment)
{
	part->index.fd = memfd_create("index", MFD_CLOEXEC);
	part->segments = calloc(1, sizeof(*part->segments));
	part->segment_count = 1;
	segment_hold(&part->segments[0], segment, version);
}

static struct segment *new_segment(void)
{
	struct segment *segment = segment_new(memfd_create("segment", MFD_CLOEXEC), 4096, 0);
	struct error error;

	cr_assert_eq(budget_charge(host(), 4096, &segment->charge, &error), 0);
	return segment;
}

Test(segment, a_part_closes_and_its_budget_returns)
{
	int fds = fd_count(), done = 0;
	struct version version = {0};
	struct replica part = {0};

	fill(&version, &part, new_segment());
	segment_let_go(&part.segments[0]);
	cr_expect(part.segments[0].last);
	closing_part(&server->loop, &part, NULL, count_done, &done);
	cr_assert_eq(part.index.fd, -1);
	cr_assert_null(part.segments);
	cr_assert_eq(host()->used, 4096, "not before it is closed");
	TURN_UNTIL(done == 1);
	cr_assert_eq(host()->used, 0);
	cr_assert_eq(fd_count(), fds);
}

Test(segment, an_empty_part_closes_too)
{
	struct replica part = {.index.fd = -1};
	int done = 0;

	closing_part(&server->loop, &part, NULL, count_done, &done);
	TURN_UNTIL(done == 1);
}

/* Whichever of the two goes first. */
static void close_two(unsigned first)
{
	int fds = fd_count(), done = 0;
	struct segment *segment = new_segment();
	struct version versions[2] = {0};
	struct replica parts[2] = {0};

	for (unsigned i = 0; i < 2; i++)
		fill(&versions[i], &parts[i], segment);
	cr_expect(segment_is_shared(segment));
	segment_let_go(&parts[first].segments[0]);
	cr_expect_not(parts[first].segments[0].last);
	cr_expect_not(segment_is_shared(segment));
	closing_part(&server->loop, &parts[first], NULL, count_done, &done);
	TURN_UNTIL(done == 1);
	cr_expect_eq(host()->used, 4096);
	cr_expect_eq(fd_count(), fds + 2, "one index is closed");
	segment_let_go(&parts[!first].segments[0]);
	cr_expect(parts[!first].segments[0].last);
	closing_part(&server->loop, &parts[!first], NULL, count_done, &done);
	TURN_UNTIL(done == 2);
	cr_expect_eq(host()->used, 0);
	cr_expect_eq(fd_count(), fds);
}

Test(segment, of_two_parts_goes_with_the_last)
{
	close_two(0);
	close_two(1);
}

/* The first part's lease was revoked, and its holder maps the memory until after the second part is gone. */
Test(segment, of_two_parts_stays_charged_while_it_is_mapped)
{
	struct segment *segment = new_segment();
	struct version versions[2] = {0};
	struct shared_charge *shared;
	struct replica parts[2] = {0};
	int done = 0;

	for (unsigned i = 0; i < 2; i++)
		fill(&versions[i], &parts[i], segment);
	segment_let_go(&parts[0].segments[0]);
	shared = shared_charge_map(shared_charge_of_part(&parts[0]));
	closing_part(&server->loop, &parts[0], shared, count_done, &done);
	TURN_UNTIL(done == 1);
	cr_expect_eq(host()->still_mapped, 0, "the second version holds it");
	segment_let_go(&parts[1].segments[0]);
	cr_expect_eq(host()->still_mapped, 4096);
	segment_let_go(&parts[1].segments[0]);
	cr_expect_eq(host()->still_mapped, 4096, "it counts once");
	closing_part(&server->loop, &parts[1], NULL, count_done, &done);
	TURN_UNTIL(done == 2);
	cr_expect_eq(host()->used, 4096);
	cr_assert_null(shared_charge_unmap(shared));
	cr_expect_eq(host()->used, 0);
	cr_expect_eq(host()->still_mapped, 0);
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
