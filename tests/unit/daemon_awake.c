/* Which leases are awake, in memory that outlives gpuwmd; and pids, which name processes. */
#include "tests/support/daemon/ledger.h"

#include "daemon/base/pids.h"
#include "daemon/ledger/awake.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static struct lease *held;
static int holder;
static _Alignas(8) uint8_t notes[sizeof(struct awake_table) + 100 * sizeof(struct awake_entry)];

#define SPACE 7 /* a PID namespace */

static bool begins(size_t bytes, uint64_t space)
{
	return awake_begin(registry_awake(ledger.registry), notes, bytes, space);
}

static const struct awake_table *table(void)
{
	return (const struct awake_table *)notes;
}

static size_t noted(void)
{
	size_t count = 0;

	for (size_t i = 0; i < table()->used; i++)
		count += table()->entries[i].lease != 0;
	return count;
}

LedgerTest(awake, has_a_lease_while_it_is_awake)
{
	struct version *version = ledger_ready("m", "v1");
	struct lease *lease;

	cr_expect_not(begins(sizeof(notes), SPACE), "nobody wrote it");
	lease = ledger_lease(version, &holder, &held);
	cr_assert_eq(noted(), 1);
	cr_expect_eq(table()->entries[0].lease, lease->id);
	cr_expect_eq(table()->entries[0].pid, 0, "nobody knows whose it is");
	cr_expect_str_eq(table()->entries[0].device, lease_device(lease)->id);
	cr_assert_eq(lease_room_set(lease, 4096, ledger.quota, NULL, &ledger.error), 0);
	cr_expect_eq(table()->entries[0].room, 4096);
	lease_park(lease);
	cr_expect_eq(noted(), 0);
	lease_unpark(ledger.registry, lease);
	cr_assert_eq(noted(), 1);
	cr_expect_eq(table()->entries[0].lease, lease->id, "under its new number");
	cr_expect_eq(table()->entries[0].room, 4096);
	lease_unpark_undo(ledger.registry, lease);
	cr_expect_eq(noted(), 0);
	lease_unpark(ledger.registry, lease);
	lease_release(ledger.registry, lease);
	cr_expect_eq(noted(), 0);
}

LedgerTest(awake, is_trusted_when_it_is_complete)
{
	struct version *version = ledger_ready("m", "v1");
	struct lease *lease;

	cr_expect_not(begins(sizeof(notes), SPACE));
	lease = ledger_lease(version, &holder, &held);
	registry_keep_awake(ledger.registry);
	lease_release(ledger.registry, lease);
	cr_expect_not(begins(sizeof(notes), SPACE), "others may be awake, of which it does not know");
	cr_expect_eq(noted(), 0);
	lease = ledger_lease(version, &holder, &held);
	awake_trust(registry_awake(ledger.registry), SPACE);
	registry_keep_awake(ledger.registry);
	lease_release(ledger.registry, lease);
	cr_expect_eq(noted(), 1, "gpuwmd stops");
	cr_expect(begins(sizeof(notes), SPACE));
	cr_expect_eq(noted(), 1);
	cr_expect_not(begins(sizeof(notes), SPACE + 1), "its pids name other processes there");
	cr_expect_not(begins(sizeof(notes), 0));
	registry_keep_awake(ledger.registry);
}

LedgerTest(awake, says_that_it_was_too_small)
{
	const size_t small = sizeof(struct awake_table) + 70 * sizeof(struct awake_entry);
	struct version *version = ledger_ready("m", "v1");
	struct lease *leases[71];

	begins(small, SPACE);
	awake_trust(registry_awake(ledger.registry), SPACE);
	for (int i = 0; i < 70; i++)
		leases[i] = ledger_lease(version, &holder, &held);
	cr_expect(begins(small, SPACE));
	leases[70] = ledger_lease(version, &holder, &held);
	cr_expect_eq(noted(), 70);
	for (int i = 0; i < 71; i++)
		lease_release(ledger.registry, leases[i]);
	cr_expect_eq(noted(), 0);
	leases[0] = ledger_lease(version, &holder, &held);
	cr_expect_eq(noted(), 1, "entries are used again");
	lease_release(ledger.registry, leases[0]);
	cr_expect_not(begins(small, SPACE), "one was missing");
	registry_keep_awake(ledger.registry);
}

Test(pids, name_a_process_with_its_start)
{
	const pid_t pid = fork();
	int fd;

	if (pid == 0) {
		pause();
		_exit(0);
	}
	cr_expect_gt(pid_started(getpid()), 0);
	cr_expect_geq(pid_started(pid), pid_started(getpid()));
	cr_expect_gt(pid_namespace_id(), 0);
	fd = pid_open(pid);
	cr_assert_geq(fd, 0);
	close(fd);
	kill(pid, SIGKILL);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	cr_expect_eq(pid_started(pid), 0);
	cr_expect_eq(pid_open(pid), -ESRCH);
	cr_expect_eq(pid_started(0), 0);
}
