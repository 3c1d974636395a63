/* Copies by legacy CUDA IPC, as plain data: what they are charged with, and how many there may be. */
#include "daemon/ledger/ipc_copy.h"
#include "tests/support/daemon/ledger.h"

static struct ipc_copy_table table;
static int holder;
static struct lease *held;

static void begin(void)
{
	ledger_open();
	table = (struct ipc_copy_table){.quota = ledger.quota};
	held = NULL;
}

static void end(void)
{
	ipc_copy_table_clear(&table);
	ledger_close();
}

static struct version *some_version(void)
{
	struct version *version = ledger_ready("m", "v1");

	version->replicas[0].bytes = MIB(1);
	return version;
}

#define CopyTest(name) TestBetween(ipc_copy, name, begin(), end())

static int add(struct version *version, uid_t uid, struct ipc_copy **ret)
{
	return ipc_copy_add(&table, version, 0, uid, ret, &ledger.error);
}

CopyTest(its_bytes_are_charged_to_device_and_user_and_come_back)
{
	struct version *version = some_version();
	struct device *device = version->replicas[0].device;
	uint64_t before = device->used, bytes = version->replicas[0].bytes;
	struct ipc_copy *copy;

	cr_assert_eq(add(version, 7, &copy), 0, "%s", ledger.error.message);
	cr_expect_eq(device->used, before + bytes);
	cr_expect_eq(quota_used(ledger.quota, 7, QUOTA_BYTES), bytes);
	cr_expect_eq(quota_used(ledger.quota, 7, QUOTA_COPIES), 1);
	cr_expect_eq(table.bytes, bytes);
	cr_expect_eq(ipc_copy_find(&table, version, 0, 7), copy);
	cr_expect_null(ipc_copy_find(&table, version, 0, 8), "another user has none");
	ipc_copy_free(&table, copy);
	cr_expect_eq(device->used, before);
	cr_expect_eq(quota_used(ledger.quota, 7, QUOTA_BYTES), 0);
	cr_expect_eq(table.count, 0);
}

CopyTest(there_are_only_so_many_of_a_user_and_in_all)
{
	struct version *version = some_version();
	struct ipc_copy *copy;

	unsigned users = 0;

	for (uint64_t i = 0; i < quota_alone(&quota_defaults, QUOTA_COPIES); i++)
		cr_assert_eq(add(version, 7, &copy), 0);
	expect_error(add(version, 7, &copy), -EDQUOT, "copies by CUDA IPC");
	while (users < COPIES_MAX && add(version, 8 + users, &copy) == 0)
		users++;
	expect_error(add(version, 9000, &copy), -EDQUOT, "copies by CUDA IPC");
	cr_expect_eq(table.count, COPIES_MAX - COPIES_MAX / SHARE_RESERVED, "an eighth is operators'");
	cr_expect_gt(users, 0);
}

CopyTest(what_does_not_fit_is_charged_to_nobody)
{
	struct version *version = some_version();
	struct device *device = version->replicas[0].device;
	struct ipc_copy *copy;
	uint64_t used;

	device->budget = used = device->used;
	expect_error(add(version, 7, &copy), -ENOSPC, "no room on");
	cr_expect_eq(device->used, used);
	cr_expect_eq(quota_used(ledger.quota, 7, QUOTA_COPIES), 0);
}

CopyTest(it_is_idle_without_a_lease_and_still_mapped_after_a_revoked_one)
{
	struct version *version = some_version();
	struct device *device = version->replicas[0].device;
	uint64_t bytes = version->replicas[0].bytes;
	struct lease *lease = ledger_lease(version, &holder, &held);
	struct shared_charge *mapped;
	struct ipc_copy *copy;

	cr_assert_eq(add(version, 7, &copy), 0);
	ipc_copy_join(copy, lease);
	cr_expect_eq(copy->lease_count, 1);
	mapped = shared_charge_map(copy->charge);
	ipc_copy_leave(lease, 5);
	cr_expect(copy->idle_ms == 5 && copy->lease_count == 0 && !lease->copy);
	cr_expect_eq(device->still_mapped, 0, "the copy is there");
	ipc_copy_free(&table, copy);
	cr_expect_eq(device->still_mapped, bytes);
	shared_charge_unmap(mapped);
	cr_expect_eq(device->still_mapped, 0);
	lease_release(ledger.registry, lease);
}
