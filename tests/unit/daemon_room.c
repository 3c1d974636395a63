/* What a refusal for want of budget says of waiting. */
#include "daemon/work/tiers/room.h"
#include "tests/support/daemon/server.h"

TestSuite(room, .init = server_open, .fini = server_close);

static struct error refusal;

static const char *explained(uint64_t bytes)
{
	error_set(&refusal, -ENOSPC, "retire a version", "no room");
	room_explain(&server->work, device_find(&server->ledger.devices, DEVICE_HOST), bytes, true, &refusal);
	cr_assert_eq(refusal.code, -ENOSPC);
	cr_assert_str_eq(refusal.message, "no room");
	return refusal.detail;
}

Test(room, that_nobody_gives_back_is_not_waited_for)
{
	ready("m", "v1");
	cr_expect_str_eq(explained(1), "retire a version");
}

Test(room, of_retiring_versions_comes_with_their_last_lease_or_pin)
{
	struct version *version;
	struct error error;

	ready("m", "v1");
	version = ready("m", "v2");
	cr_assert_eq(version_pin(version, "night", &error), 0);
	cr_assert_eq(versions_retire(&server->work, version, &error), 0);
	cr_expect_str_eq(explained(1),
			 "retire a version, or wait for what comes back: 4.0 KiB of retiring versions "
			 "when their leases and pins are gone");
}

Test(room, that_is_being_freed_comes_by_itself)
{
	struct device *host = device_find(&server->ledger.devices, DEVICE_HOST);
	struct version *version;
	struct error error;

	ready("m", "v1");
	version = ready("m", "v2");
	cr_assert_eq(versions_retire(&server->work, version, &error), 0);
	cr_assert_eq(host->used, 8192, "it takes a turn of the loop");
	cr_expect_str_eq(explained(1),
			 "retire a version, or wait for what comes back: 4.0 KiB that is being freed");
	TURN_UNTIL(host->used == 4096);
	cr_expect_str_eq(explained(1), "retire a version");
}

Test(room, of_revoked_leases_comes_when_their_processes_have_unmapped_it)
{
	struct device *host = device_find(&server->ledger.devices, DEVICE_HOST);

	ready("m", "v1");
	host->used += 8192;
	host->still_mapped = 8192;
	cr_expect_str_eq(explained(1),
			 "retire a version, or wait for what comes back: 8.0 KiB of revoked leases when their "
			 "processes have unmapped it or exited");
	host->used -= 8192;
}

/* Where they are all that is in the way. */
Test(room, of_contexts_comes_when_jobs_have_ended)
{
	struct device *host = device_find(&server->ledger.devices, DEVICE_HOST);
	struct budget_charge context = {0};
	struct error error;

	host->context = 4096;
	cr_assert_eq(budget_charge_context(host, &context, &error), 0);
	cr_expect_str_eq(explained(1),
			 "retire a version, or wait for what comes back: 4.0 KiB of CUDA contexts when "
			 "running jobs have ended");
	cr_expect_str_eq(explained(host->budget), "retire a version");
	budget_release(&context);
}
