/* Versions whose memory is not what was checked. */
#include "tests/support/daemon/snapshot.h"
#include "tests/support/fail_alloc.h"

static const struct error damage = {.code = -EBADMSG, .message = "tensor w has the digest 12, not 34"};

LedgerTest(taint, ends_new_leases_and_leaves_the_old_ones)
{
	struct version *version = ledger_ready("m", "v1");
	struct lease *leases = NULL, *lease;
	int holder;

	cr_expect_eq(version_check_sound(version, &ledger.error), 0);
	ledger_lease(version, &holder, &leases);
	version_taint(version, &damage);
	expect_error(lease_grant(ledger.registry, version, 0,
				 &(struct lease_holder){.holder = &holder,
							.leases = &leases,
							.quota = ledger.quota,
							.uid = LEDGER_UID},
				 &lease, &ledger.error),
		     -EBADMSG, "m@v1 is tainted: tensor w has the digest 12, not 34");
	cr_expect_str_eq(ledger.error.detail,
			 "gpuwmctl swap m to another version, or load it again under another tag");
	cr_expect_eq(version->lease_count, 1);
	cr_assert_eq(lease_resume(ledger.registry, version, 0, false,
				  &(struct lease_holder){.holder = &holder,
							 .leases = &leases,
							 .quota = ledger.quota,
							 .uid = LEDGER_UID},
				  &lease, &ledger.error),
		     0, "%s", ledger.error.message);
	lease_release(ledger.registry, lease);
	lease_release(ledger.registry, leases);
}

LedgerTest(taint, keeps_aliases_where_they_are)
{
	struct version *good = ledger_ready("m", "v1"), *bad = ledger_ready("m", "v2");

	cr_assert_eq(ledger_swap("m", "prod", bad), 0);
	version_taint(bad, &damage);
	expect_error(ledger_swap("m", "current", bad), -EBADMSG, "m@v2 is tainted");
	cr_expect_eq(ledger_find("m"), good);
	expect_error(ledger_swap("m", "prod", bad), -EBADMSG, "m@v2 is tainted");
	cr_expect_eq(ledger_find("m@prod"), bad);
	cr_expect_eq(ledger_swap("m", "prod", good), 0);
	cr_expect_eq(version_pin(bad, "look", &ledger.error), 0, "one may be kept for a look");
}

LedgerTest(taint, is_what_was_found_first)
{
	const struct error later = {.code = -EBADMSG, .message = "tensor x"};
	struct version *version = ledger_ready("m", "v1");

	version_taint(version, &damage);
	version_taint(version, &later);
	expect_error(version_check_sound(version, &ledger.error), -EBADMSG, "tensor w");
}

LedgerTest(taint, holds_without_memory_to_say_why)
{
	struct version *version = ledger_ready("m", "v1");

	cr_assert_eq(ledger_swap("m", "current", NULL), 0);
	cr_assert_eq(registry_retire(ledger.registry, version, &ledger.error), 0);
	fail_alloc_arm(1);
	version_taint(version, &damage);
	cr_assert(fail_alloc_disarm());
	expect_error(version_check_sound(version, &ledger.error), -EBADMSG, "m@v1 is tainted: it is damaged");
}

SnapshotTest(taint, survives_a_restart)
{
	struct version *ready = fake_ready("m", "v1"), *retiring = fake_ready("m", "v2"), *version;

	fake_ready("m", "v3");
	version_taint(ready, &damage);
	version_taint(retiring, &damage);
	cr_assert_eq(version_pin(retiring, "p", &ledger.error), 0);
	cr_assert_eq(registry_retire(ledger.registry, retiring, &ledger.error), 0);
	back_from_ledger();
	version = back_find("m"); /* current stays where it was */
	cr_assert(version && version->tainted);
	cr_expect_eq(version->tainted->code, -EBADMSG);
	cr_expect_str_eq(version->tainted->message, damage.message);
	cr_expect(back_find("m@v2")->tainted);
	cr_expect_not(back_find("m@v3")->tainted);
}

/* A version that was lost has nothing left that could be damaged. */
SnapshotTest(taint, goes_with_a_lost_version)
{
	struct version *version = fake_ready("m", "v1");

	version_taint(version, &damage);
	fake_missing[0] = version->replicas[0].index.name;
	back_from_ledger();
	cr_expect_eq(back.lost, 1);
	cr_expect_eq(back_find("m@v1")->state, VERSION_FAILED);
	cr_expect_not(back_find("m@v1")->tainted);
}

LedgerTest(reader, keeps_a_retiring_version)
{
	struct version *version = ledger_ready("m", "v1");

	cr_assert_eq(ledger_swap("m", "current", NULL), 0);
	cr_expect_not(version_unwanted(version));
	cr_assert_eq(registry_retire(ledger.registry, version, &ledger.error), 0);
	version->readers = 1;
	cr_expect(version_unwanted(version));
	cr_expect_not(version_unused(version));
	version->readers = 0;
	cr_expect(version_unused(version));
	cr_assert_eq(version_pin(ledger_ready("m", "v2"), "p", &ledger.error), 0);
}

/* ---- a lost device ---------------------------------------------------- */

static const struct error loss = {.code = -ENODEV, .message = "GPU-x is lost: it left"};

/* Each of two ranks on the host, and rank 0 on the GPU too. */
static struct version *replicated(void)
{
	struct budget_charge charge;
	struct version *version;
	uint32_t position;

	cr_assert_eq(registry_add(ledger.registry, &(struct version_wish){"m", "v1", 2, LEDGER_UID, {0}},
				  &version, &ledger.error),
		     0);
	for (uint32_t i = 0; i < 3; i++) {
		struct device *device = i == 1 ? ledger.gpu : ledger.host;

		cr_assert_eq(budget_charge(device, MIB(1), &charge, &ledger.error), 0);
		cr_assert_eq(version_add_replica(version, i / 2, device, &charge, &position, &ledger.error), 0);
		fake_fill(version, position, 1);
		version_count(version, &version->replicas[position]);
	}
	fake_store(version);
	ledger_make_ready(version);
	return version;
}

LedgerTest(lost, replicas_give_no_leases_and_others_do)
{
	struct version *version = replicated();

	cr_expect(version_lose(version, ledger.gpu));
	version_taint(version, &loss);
	cr_expect(version_is_left(version));
	cr_expect_eq(version_check_replica(version, 0, &ledger.error), 0);
	cr_expect_eq(version_check_replica(version, 2, &ledger.error), 0);
	expect_error(version_check_replica(version, 1, &ledger.error), -ENODEV,
		     "m@v1 is tainted: GPU-x is lost: it left");
	expect_error(ledger_swap("m", "prod", version), -ENODEV, "m@v1 is tainted");
	cr_expect_not(version_lose(version, ledger.gpu), "they were lost before");
}

LedgerTest(lost, ranks_take_the_others_with_them)
{
	struct version *version = replicated();

	cr_expect(version_lose(version, ledger.host));
	version_taint(version, &loss);
	cr_expect_not(version_is_left(version));
	expect_error(version_check_replica(version, 1, &ledger.error), -ENODEV, "m@v1 is tainted");
}

LedgerTest(lost, counts_less_than_damage)
{
	struct version *version = replicated();

	version_lose(version, ledger.gpu);
	version_taint(version, &loss);
	version_taint(version, &damage);
	cr_expect_not(version_is_left(version));
	expect_error(version_check_replica(version, 0, &ledger.error), -EBADMSG, "tensor w");
	version_taint(version, &loss);
	expect_error(version_check_sound(version, &ledger.error), -EBADMSG, "tensor w");
}

LedgerTest(lost, holds_without_memory_to_say_how)
{
	struct version *version = replicated();

	version_lose(version, ledger.gpu);
	fail_alloc_arm(1);
	version_taint(version, &loss);
	cr_assert(fail_alloc_disarm());
	cr_expect(version_is_left(version));
	expect_error(version_check_sound(version, &ledger.error), -ENODEV, "a GPU was lost");
	version_taint(version, &damage);
	expect_error(version_check_sound(version, &ledger.error), -EBADMSG, "tensor w");
}

SnapshotTest(lost, devices_and_parts_survive_a_restart)
{
	struct version *version = replicated();
	struct device *gpu;

	fake_ready("other", "v1");
	ledger.gpu->lost = loss;
	version_lose(version, ledger.gpu);
	version_taint(version, &loss);
	back_from_ledger();
	gpu = device_find(&back.devices, LEDGER_GPU);
	expect_error(device_check_there(gpu, &ledger.error), -ENODEV, "is lost: GPU-x is lost: it left");
	cr_expect_eq(device_check_there(device_find(&back.devices, "host"), &ledger.error), 0);
	version = back_find("m");
	cr_assert(version && version_is_left(version));
	cr_expect(!version->replicas[0].lost && version->replicas[1].lost && !version->replicas[2].lost);
	cr_expect_not(back_find("other")->tainted);
}
