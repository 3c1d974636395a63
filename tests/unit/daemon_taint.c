/* Versions whose memory is not what was checked. */
#include "daemon_snapshot.h"
#include "fail_alloc.h"

static const struct error damage = {.code = -EBADMSG, .message = "tensor w has the digest 12, not 34"};

LedgerTest(taint, ends_new_leases_and_leaves_the_old_ones)
{
	struct version *version = ledger_ready("m", "v1");
	struct lease *leases = NULL, *lease;
	int holder;

	cr_expect_eq(version_check_sound(version, &ledger.error), 0);
	ledger_lease(version, &holder, &leases);
	version_taint(version, &damage);
	expect_error(lease_grant(ledger.registry, version, 0, &holder, &leases, ledger.quota, LEDGER_UID,
				 &lease, &ledger.error),
		     -EBADMSG, "m@v1 is tainted: tensor w has the digest 12, not 34");
	cr_expect_str_eq(ledger.error.detail,
			 "gpuwmctl swap m to another version, or load it again under another tag");
	cr_expect_eq(version->lease_count, 1);
	cr_assert_eq(lease_resume(ledger.registry, version, 0, &holder, &leases, ledger.quota, LEDGER_UID,
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

LedgerTest(taint, survives_a_restart)
{
	struct version *ready = fake_ready("m", "v1"), *retiring = fake_ready("m", "v2"), *version;
	struct back back = {0};

	fake_ready("m", "v3");
	version_taint(ready, &damage);
	version_taint(retiring, &damage);
	cr_assert_eq(version_pin(retiring, "p", &ledger.error), 0);
	cr_assert_eq(registry_retire(ledger.registry, retiring, &ledger.error), 0);
	back_from_ledger(&back);
	version = back_find(&back, "m"); /* current stays where it was */
	cr_assert(version && version->tainted);
	cr_expect_eq(version->tainted->code, -EBADMSG);
	cr_expect_str_eq(version->tainted->message, damage.message);
	cr_expect(back_find(&back, "m@v2")->tainted);
	cr_expect_not(back_find(&back, "m@v3")->tainted);
	back_clear(&back);
}

/* A version that was lost has nothing left that could be damaged. */
LedgerTest(taint, goes_with_a_lost_version)
{
	struct version *version = fake_ready("m", "v1");
	struct back back = {0};

	version_taint(version, &damage);
	fake_missing[0] = version->replicas[0].index.name;
	back_from_ledger(&back);
	cr_expect_eq(back.lost, 1);
	cr_expect_eq(back_find(&back, "m@v1")->state, VERSION_FAILED);
	cr_expect_not(back_find(&back, "m@v1")->tainted);
	fake_missing[0] = 0;
	back_clear(&back);
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
