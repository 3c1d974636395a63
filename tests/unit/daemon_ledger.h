/* What the tests of the ledger share: two devices, quotas, a registry, publishes. */
#ifndef GPUWM_TESTS_DAEMON_LEDGER_H
#define GPUWM_TESTS_DAEMON_LEDGER_H

#include "daemon/ledger/claim.h"
#include "daemon/ledger/publish.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEDGER_GPU "GPU-01234567-89ab-cdef-0123-456789abcdef"
#define LEDGER_UID 1000

static struct ledger {
	struct device_table devices;
	struct device *host, *gpu;
	struct quota *quota;
	struct registry *registry;
	struct publish_table *publishes;
	struct claim_table *claims;
	struct error error;
} ledger;

static inline struct device *ledger_device(const char *id, bool is_cuda, uint64_t total)
{
	struct device report = {.is_cuda = is_cuda, .total = total, .free = total, .granularity = 4096};

	snprintf(report.id, sizeof(report.id), "%s", id);
	snprintf(report.name, sizeof(report.name), "name of %s", id);
	cr_assert_eq(device_table_report(&ledger.devices, &report, 1), 0);
	return device_find(&ledger.devices, id);
}

static inline void ledger_open(void)
{
	ledger.host = ledger_device(DEVICE_HOST, false, GIB(100));
	ledger.gpu = ledger_device(LEDGER_GPU, true, GIB(100));
	ledger.quota = quota_new(&quota_defaults);
	ledger.registry = registry_new();
	ledger.publishes = publish_table_new();
	ledger.claims = claim_table_new();
	cr_assert(ledger.quota && ledger.registry && ledger.publishes && ledger.claims);
}

static inline void ledger_close(void)
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

/* A test between ledger_open and ledger_close. They are no fixtures of a suite: Criterion
 * counts neither a failed check nor a crash in those. */
#define LedgerTest(suite, name)                                                                                \
	static void suite##_##name##_body(void);                                                               \
	Test(suite, name)                                                                                      \
	{                                                                                                      \
		ledger_open();                                                                                 \
		suite##_##name##_body();                                                                       \
		ledger_close();                                                                                \
	}                                                                                                      \
	static void suite##_##name##_body(void)

/* A version in building with its one part. */
static inline struct version *ledger_building(const char *model, const char *tag)
{
	struct budget_charge charge;
	struct version *version;
	uint32_t position;

	cr_assert_eq(registry_add(ledger.registry, model, tag, 1, LEDGER_UID, &version, &ledger.error), 0, "%s",
		     ledger.error.message);
	cr_assert_eq(budget_charge(ledger.host, MIB(1), &charge, &ledger.error), 0);
	cr_assert_eq(version_add_replica(version, 0, ledger.host, &charge, &position, &ledger.error), 0);
	return version;
}

static inline void ledger_make_ready(struct version *version)
{
	bool current;

	for (uint32_t i = 0; i < version->replica_count; i++)
		version->replicas[i].committed = version->replicas[i].checked = true;
	version_move(version, VERSION_CHECKING);
	cr_assert_eq(registry_ready(ledger.registry, version, &current, &ledger.error), 0);
}

static inline struct version *ledger_ready(const char *model, const char *tag)
{
	struct version *version = ledger_building(model, tag);

	ledger_make_ready(version);
	return version;
}

static inline void ledger_fail(struct version *version)
{
	struct error reason = {.code = -EIO};

	snprintf(reason.message, sizeof(reason.message), "the loader died");
	for (uint32_t i = 0; i < version->replica_count; i++)
		budget_release(&version->replicas[i].charge);
	registry_fail(ledger.registry, version, &reason);
}

/* What a reference names now, or NULL with ledger.error set. */
static inline struct version *ledger_find(const char *text)
{
	struct version *version = NULL;
	uint64_t generation;
	const char *why;
	struct ref ref;

	cr_assert_eq(ref_parse(text, &ref, &why), 0, "%s %s", text, why);
	registry_find(ledger.registry, &ref, &version, &generation, &ledger.error);
	return version;
}

static inline int ledger_swap(const char *model, const char *alias, struct version *to)
{
	struct swap_result result;

	return registry_swap(ledger.registry, model, alias, to, NULL, &result, &ledger.error);
}

static inline struct lease *ledger_lease(struct version *version, void *holder, struct lease **leases)
{
	struct lease *lease = NULL;

	cr_assert_eq(lease_grant(ledger.registry, version, 0, holder, leases, ledger.quota, LEDGER_UID, &lease,
				 &ledger.error),
		     0, "%s", ledger.error.message);
	return lease;
}

#define expect_error(call, expected, text)                                                                     \
	do {                                                                                                   \
		ledger.error = (struct error){0};                                                              \
		int code_ = (call);                                                                            \
		cr_expect_eq(code_, (expected), "%s gave %d: %s", #call, code_, ledger.error.message);         \
		cr_expect(strstr(ledger.error.message, (text)), "\"%s\" is not in \"%s\"", (text),             \
			  ledger.error.message);                                                               \
	} while (0)

#endif
