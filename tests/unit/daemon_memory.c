/* Every allocation of the ledger fails once: -ENOMEM, and everything is as it was. */
#include "tests/support/daemon/ledger.h"
#include "tests/support/fail_alloc.h"
#include "daemon/config/config.h"
#include "daemon/ledger/event.h"

#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's random source, in front of libc's: fails when told to. */
static int random_left = -1;
__attribute__((visibility("default"))) ssize_t getrandom(void *buffer, size_t bytes, unsigned flags)
{
	if (random_left == 0) {
		errno = ENOSYS;
		return -1;
	}
	random_left -= random_left > 0;
	return syscall(SYS_getrandom, buffer, bytes, flags);
}

/* Runs `call` with its first allocation failing, its second, ... until none fails; `unchanged`
 * must hold after each failure. How many failed is checked, so that the test can't pass by failing none. */
#define fail_each(call, at_least, unchanged)                                                                   \
	do {                                                                                                   \
		unsigned n_ = 1;                                                                               \
		int code_;                                                                                     \
		for (;; n_++) {                                                                                \
			fail_alloc_arm(n_);                                                                    \
			code_ = (call);                                                                        \
			if (!fail_alloc_disarm())                                                              \
				break;                                                                         \
			cr_assert_eq(code_, -ENOMEM, "allocation %u of %s gave %d", n_, #call, code_);         \
			cr_assert(unchanged, "after allocation %u of %s", n_, #call);                          \
		}                                                                                              \
		cr_assert_eq(code_, 0, "%s: %s", #call, ledger.error.message);                                 \
		cr_assert_geq(n_ - 1, (unsigned)(at_least), "only %u allocations failed", n_ - 1);             \
	} while (0)

static int add(const char *model, const char *tag, struct version **ret)
{
	return registry_add(ledger.registry, &(struct version_wish){model, tag, 1, LEDGER_UID, {0}}, ret,
			    &ledger.error);
}

static bool is_empty(void)
{
	struct registry_counts none = {0}, counts = registry_counts(ledger.registry);

	return memcmp(&none, &counts, sizeof(none)) == 0 && !ledger_find("m") &&
	       strcmp(ledger.error.message, "no model \"m\"") == 0;
}

LedgerTest(out_of_memory, tables_are_not_made)
{
	fail_alloc_arm(1);
	cr_expect_null(registry_new());
	fail_alloc_arm(1);
	cr_expect_null(quota_new(&quota_defaults));
	fail_alloc_arm(1);
	cr_expect_null(publish_table_new());
	fail_alloc_arm(1);
	cr_expect_null(event_ring_new());
	cr_expect(fail_alloc_disarm());
}

LedgerTest(out_of_memory, first_version_of_a_model_leaves_nothing)
{
	struct version *version = NULL;

	fail_each(add("m", "v1", &version), 9, is_empty() && !version);
}

LedgerTest(out_of_memory, failed_version_stays_when_its_tag_could_not_be_used_anew)
{
	struct version *failed = ledger_building("m", "v1"), *version = NULL;

	ledger_fail(failed);
	fail_each(add("m", "v1", &version), 2,
		  ledger_find("m@v1") == failed && failed->state == VERSION_FAILED);
	cr_expect_eq(ledger_find("m@v1"), version);
}

LedgerTest(out_of_memory, version_without_an_id_is_not_added)
{
	struct version *version = NULL;

	for (random_left = 0; random_left < 2; random_left++) {
		int left = random_left;
		expect_error(add("m", "v1", &version), -ENOSYS, "no random numbers: Function not implemented");
		cr_assert(is_empty() && !version);
		random_left = left;
	}
	random_left = -1;
	cr_expect_eq(add("m", "v1", &version), 0);
}

/* Tables of uthash grow: each version's insertion is failed once while a thousand come. */
LedgerTest(out_of_memory, growing_tables_keep_what_they_have)
{
	struct version *version = NULL;
	char tag[16], text[32];
	unsigned failures = 0;

	for (unsigned i = 0; i < 1000; i++) {
		snprintf(tag, sizeof(tag), "v%u", i);
		for (unsigned n = 1;; n++) {
			fail_alloc_arm(n);
			int r = add("m", tag, &version);
			if (!fail_alloc_disarm())
				break;
			cr_assert_eq(r, -ENOMEM);
			failures++;
		}
	}
	cr_expect_gt(failures, 3000, "besides three a version, some in growing tables");
	cr_expect_eq(registry_counts(ledger.registry).versions, 1000);
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(text, sizeof(text), "m@v%u", i);
		cr_assert(ledger_find(text), "%s", text);
	}
}

LedgerTest(out_of_memory, replica_is_not_added)
{
	struct version *version = ledger_building("m", "v1");
	struct budget_charge charge;
	uint32_t position;

	cr_assert_eq(budget_charge(ledger.gpu, 10, &charge, NULL), 0);
	fail_each(version_add_replica(version, 0, ledger.gpu, &charge, &position, &ledger.error), 1,
		  version->replica_count == 1 && charge.bytes == 10);
}

LedgerTest(out_of_memory, version_does_not_become_ready_without_its_alias)
{
	struct version *version = ledger_building("m", "v1");
	bool current = false;

	version->replicas[0].committed = version->replicas[0].checked = true;
	version_move(version, VERSION_CHECKING);
	fail_each(registry_ready(ledger.registry, version, &current, &ledger.error), 2,
		  version->state == VERSION_CHECKING && version->alias_count == 0 && !current &&
			  registry_counts(ledger.registry).aliases == 0);
	cr_expect_eq(ledger_find("m"), version);
}

LedgerTest(out_of_memory, alias_stays_where_it_was)
{
	struct version *v1 = ledger_ready("m", "v1"), *v2 = ledger_ready("m", "v2");

	fail_each(ledger_swap("m", "current", v2), 2,
		  ledger_find("m") == v1 && !ledger_find("m@previous") && v2->alias_count == 0);
	fail_each(ledger_swap("m", "prod", v2), 2, !ledger_find("m@prod") && v2->alias_count == 1);
	cr_expect_eq(registry_counts(ledger.registry).aliases, 3);
}

LedgerTest(out_of_memory, user_without_charges_was_forgotten)
{
	struct quota_charge charge;

	cr_assert_eq(quota_charge(ledger.quota, LEDGER_UID, QUOTA_LEASES, &charge, NULL), 0);
	quota_release(&charge);
	fail_alloc_arm(1);
	cr_expect_eq(quota_charge(ledger.quota, LEDGER_UID, QUOTA_LEASES, &charge, NULL), -ENOMEM);
	cr_expect(fail_alloc_disarm(), "a known user needs no memory");
}

LedgerTest(out_of_memory, pin_is_not_made)
{
	struct version *version = ledger_ready("m", "v1");

	fail_each(version_pin(version, "a", &ledger.error), 1, version->pin_count == 0);
}

static int shared(struct version *version, struct lease **leases)
{
	struct lease *lease;

	return lease_grant(
		ledger.registry, version, 0,
		&(struct lease_holder){
			.holder = leases, .leases = leases, .quota = ledger.quota, .uid = LEDGER_UID},
		&lease, &ledger.error);
}

LedgerTest(out_of_memory, lease_is_not_granted)
{
	struct version *version = ledger_ready("m", "v1");
	static struct lease *leases; /* still there when the registry is freed */

	fail_each(shared(version, &leases), 4,
		  !leases && version->lease_count == 0 &&
			  quota_used(ledger.quota, LEDGER_UID, QUOTA_LEASES) == 0);
}

LedgerTest(out_of_memory, lease_is_granted_without_a_larger_table)
{
	struct version *version = ledger_ready("m", "v1");
	static struct lease *leases; /* still there when the registry is freed */

	for (int i = 0; i < 64; i++)
		cr_assert_eq(shared(version, &leases), 0);
	fail_alloc_arm(1);
	cr_expect_eq(shared(version, &leases), 0);
	cr_expect(fail_alloc_disarm());
	cr_expect_eq(version->lease_count, 65);
	for (uint64_t id = 1; id <= 65; id++)
		cr_assert(lease_find(ledger.registry, id, &leases));
}

static struct publish *publish;
static struct publish_part *part;

static int begin(const struct publish_request *request)
{
	int r = publish_begin(ledger.publishes, ledger.registry, ledger.quota, request, &part, &ledger.error);

	if (r == 0)
		publish = part->publish;
	return r;
}

LedgerTest(out_of_memory, publish_is_not_begun_nor_joined)
{
	struct publish_request request = {
		.model = "m", .tag = "v1", .alias = "", .device = ledger.gpu, .world = 1, .bytes = 10};
	struct publish *first;

	fail_each(begin(&request), 14,
		  is_empty() && ledger.gpu->used == 0 && publish_count(ledger.publishes) == 0 &&
			  quota_used(ledger.quota, 0, QUOTA_PUBLISHES) == 0);
	first = publish;
	request.join = &first->id;
	request.device = ledger.host;
	fail_each(begin(&request), 1, ledger.host->used == 0 && first->part_count == 1);
	cr_expect_eq(publish->part_count, 2);
}

LedgerTest(out_of_memory, device_is_not_added)
{
	struct device report = {
		.id = "GPU-ffffffff-89ab-cdef-0123-456789abcdef", .kind = &kind_cuda, .total = 1};

	fail_each(device_table_report(&ledger.devices, &report, 1), 1, ledger.devices.count == 2);
}

LedgerTest(out_of_memory, event_is_numbered_and_told_as_lost)
{
	struct event_ring *ring = event_ring_new();
	const void *data;
	size_t bytes;
	uint64_t seq = 0;

	for (unsigned n = 1; n <= 2; n++) {
		fail_alloc_arm(n);
		event_emit(ring, &event_draining, NULL, NULL);
		cr_assert(fail_alloc_disarm());
		cr_assert_eq(event_last(ring), n);
	}
	fail_alloc_arm(1);
	cr_expect_eq(event_after(ring, 0, &data, &bytes, &seq), 0, "no memory for the notice either");
	cr_assert(fail_alloc_disarm());
	cr_expect_eq(event_after(ring, 0, &data, &bytes, &seq), 1);
	cr_expect_eq(seq, 2);
	event_ring_free(ring);
}

LedgerTest(out_of_memory, configuration_says_so)
{
	char *argv[] = {"gpuwmd", "--set", "loader.root=/a", NULL};
	struct config config;

	config_init(&config);
	for (unsigned n = 1;; n++) {
		fail_alloc_arm(n);
		int r = config_arguments(&config, 3, argv, &ledger.error);
		if (!fail_alloc_disarm())
			break;
		cr_assert_eq(r, -ENOMEM);
		cr_assert_eq(config.root_count, 0);
	}
	cr_expect_eq(config.root_count, 1);
	config_clear(&config);
}
