#include "ledger.h"

#include "daemon/ledger/registry_internal.h"

struct ledger ledger;

static struct device *ledger_device(const char *id, bool is_cuda, uint64_t total)
{
	struct device report = {
		.kind = is_cuda ? &kind_cuda : &kind_host, .total = total, .free = total, .granularity = 4096};

	snprintf(report.id, sizeof(report.id), "%s", id);
	snprintf(report.name, sizeof(report.name), "name of %s", id);
	cr_assert_eq(device_table_report(&ledger.devices, &report, 1), 0);
	return device_find(&ledger.devices, id);
}

void ledger_open(void)
{
	ledger.host = ledger_device(DEVICE_HOST, false, GIB(100));
	ledger.gpu = ledger_device(LEDGER_GPU, true, GIB(100));
	ledger.quota = quota_new(&quota_defaults);
	ledger.registry = registry_new();
	ledger.publishes = publish_table_new();
	ledger.claims = claim_table_new();
	cr_assert(ledger.quota && ledger.registry && ledger.publishes && ledger.claims);
}

void ledger_close(void)
{
	ledger.publishes = publish_table_free(ledger.publishes);
	ledger.claims = claim_table_free(ledger.claims);
	ledger.registry = registry_free(ledger.registry);
	cr_expect_eq(ledger.host->used, 0, "%lu bytes of host are still charged", ledger.host->used);
	cr_expect_eq(ledger.gpu->used, 0, "%lu bytes of the GPU are still charged", ledger.gpu->used);
	for (int kind = 0; kind < QUOTA_KINDS; kind++)
		cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, (enum quota_kind)kind), 0);
	ledger.quota = quota_free(ledger.quota);
	device_table_clear(&ledger.devices);
}

struct version *ledger_building(const char *model, const char *tag)
{
	struct budget_charge charge;
	struct version *version;
	uint32_t position;

	cr_assert_eq(registry_add(ledger.registry, &(struct version_wish){model, tag, 1, LEDGER_UID, {0}},
				  &version, &ledger.error),
		     0, "%s", ledger.error.message);
	cr_assert_eq(budget_charge(ledger.host, MIB(1), &charge, &ledger.error), 0);
	cr_assert_eq(version_add_replica(version, 0, ledger.host, &charge, &position, &ledger.error), 0);
	return version;
}

void ledger_make_ready(struct version *version)
{
	bool current;

	for (uint32_t i = 0; i < version->replica_count; i++)
		version->replicas[i].committed = version->replicas[i].checked = true;
	version_move(version, VERSION_CHECKING);
	cr_assert_eq(registry_ready(ledger.registry, version, &current, &ledger.error), 0);
}

struct version *ledger_ready(const char *model, const char *tag)
{
	struct version *version = ledger_building(model, tag);

	ledger_make_ready(version);
	return version;
}

void ledger_fail(struct version *version)
{
	struct error reason = {.code = -EIO};

	snprintf(reason.message, sizeof(reason.message), "the loader died");
	version_let_go(version);
	for (uint32_t i = 0; i < version->replica_count; i++)
		replica_clear(&version->replicas[i]);
	registry_fail(ledger.registry, version, &reason);
}

struct version *ledger_find(const char *text)
{
	struct version *version = NULL;
	uint64_t generation;
	const char *why;
	struct ref ref;

	cr_assert_eq(ref_parse(text, &ref, &why), 0, "%s %s", text, why);
	registry_find(ledger.registry, &ref, &version, &generation, &ledger.error);
	return version;
}

int ledger_swap(const char *model, const char *alias, struct version *to)
{
	struct swap_result result;

	return registry_swap(ledger.registry, &(struct alias_move){model, alias, to, NULL}, &result,
			     &ledger.error);
}

struct lease *ledger_lease(struct version *version, void *holder, struct lease **leases)
{
	struct lease *lease = NULL;

	cr_assert_eq(lease_grant(ledger.registry, version, 0,
				 &(struct lease_holder){.holder = holder,
							.leases = leases,
							.quota = ledger.quota,
							.uid = LEDGER_UID},
				 &lease, &ledger.error),
		     0, "%s", ledger.error.message);
	return lease;
}
