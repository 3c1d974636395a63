/* Cached versions in the registry. */
#include "tests/support/daemon/ledger.h"

static struct version *cached_building(const char *tag)
{
	const struct version_wish wish = {"m", tag, 1, LEDGER_UID, {.cached = true}};
	struct budget_charge charge = {0};
	struct version *version;
	uint32_t position;

	cr_assert_eq(registry_add(ledger.registry, &wish, &version, &ledger.error), 0, "%s",
		     ledger.error.message);
	cr_assert_eq(version_add_replica(version, 0, ledger.host, &charge, &position, &ledger.error), 0);
	return version;
}

static struct version *cached(const char *tag)
{
	struct version *version = cached_building(tag);

	ledger_make_ready(version);
	return version;
}

LedgerTest(cached, never_takes_current)
{
	struct version *version = cached("a");

	cr_expect_eq(ledger_find("m@a"), version);
	cr_expect_null(ledger_find("m"));
	cr_expect_eq(registry_counts(ledger.registry).versions, 1);
	cr_expect_eq(ledger_find("m@a"), version);
	cr_expect_eq(ledger_ready("m", "v1"), ledger_find("m"), "it is not in the way of another");
}

LedgerTest(cached, keeps_its_name_until_it_is_retired)
{
	cached("a");
	expect_error(
		registry_tag_allowed(ledger.registry, &(struct ref){.model = "m", .name = "a"}, &ledger.error),
		-EEXIST, "m@a is there already");
}

LedgerTest(cached, gives_its_name_up_when_it_is_retired)
{
	struct version *old = cached("a"), *new;
	struct lease *leases = NULL;
	int holder;
	struct lease *lease = ledger_lease(old, &holder, &leases);
	char id[VERSION_ID_TEXT];

	hex128_format(old->id.bytes, id);
	cr_assert_eq(registry_retire(ledger.registry, old, &ledger.error), 0);
	cr_assert_eq(registry_retire(ledger.registry, old, &ledger.error), 0, "again");
	cr_expect_null(ledger_find("m@a"));
	cr_expect_eq(ledger_find(id), old);
	new = cached("a");
	cr_expect_eq(ledger_find("m@a"), new);
	lease_release(ledger.registry, lease);
	registry_remove(ledger.registry, old);
	cr_expect_eq(ledger_find("m@a"), new);
	cr_expect_null(ledger_find(id));
}

LedgerTest(cached, that_an_alias_names_stays)
{
	struct version *version = cached("a");

	cr_assert_eq(ledger_swap("m", "best", version), 0);
	expect_error(registry_retire(ledger.registry, version, &ledger.error), -EBUSY, "is named by 1 alias");
	cr_expect_eq(ledger_find("m@a"), version);
}

LedgerTest(cached, that_failed_leaves_its_name_as_any)
{
	struct version *next;

	ledger_fail(cached_building("a"));
	next = cached("a");
	cr_expect_eq(ledger_find("m@a"), next);
}
