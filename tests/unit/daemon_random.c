/* A hundred thousand random operations on registry, leases, publishes, quotas and budgets beside a
 * simple model of them in arrays: every result is foretold, and all is compared every thousand.
 * GPUWM_SEED repeats a run. */
#include "tests/support/daemon/random.h"

/* ---- comparing ---- */

static void compare_slot(unsigned slot, struct registry_counts *counts)
{
	const struct slot *s = &slots[slot];
	char text[64];

	snprintf(text, sizeof(text), "%s@%s", models[slot / TAGS], tag_of(slot));
	cr_assert_eq(ledger_find(text), s->there ? s->version : NULL, "%s", text);
	if (!s->there)
		return;
	cr_assert_eq(s->version->state, s->state);
	cr_assert_eq(s->version->lease_count, s->leases);
	cr_assert_eq(s->version->pin_count, (unsigned)__builtin_popcount(s->pins));
	cr_assert_eq(registry_by_publish(ledger.registry, &s->version->publish), s->version);
	cr_assert_eq(s->version->replica_count, s->parts);
	if (s->state == VERSION_FAILED)
		return;
	counts->versions++;
	counts->leases += s->leases;
	counts->pins += s->version->pin_count;
	for (unsigned i = 0; i < s->parts; i++) {
		cr_assert_eq(s->part[i].checked ? s->version->replicas[i].bytes
						: s->version->replicas[i].charge.bytes,
			     s->part[i].granted);
		if (!s->part[i].checked)
			continue;
		counts->segments += s->part[i].segments;
		counts->fds += s->part[i].segments + 1;
		counts->bytes += s->part[i].granted;
		counts->index_bytes++; /* one each: tests/support/daemon/random.h */
	}
}

static void compare_alias(unsigned model, unsigned alias, struct registry_counts *counts)
{
	struct ref ref = {0};
	struct version *version = NULL;
	uint64_t generation = 0;
	int slot = named[model][alias].slot;

	snprintf(ref.model, sizeof(ref.model), "%s", models[model]);
	snprintf(ref.name, sizeof(ref.name), "%s", aliases[alias]);
	registry_find(ledger.registry, &ref, &version, &generation, NULL);
	cr_assert_eq(version, slot < 0 ? NULL : slots[slot].version);
	cr_assert_eq(generation, named[model][alias].generation);
	counts->aliases += slot >= 0;
}

static void compare(void)
{
	struct registry_counts counts = {0}, real = registry_counts(ledger.registry);
	const struct alias *alias = NULL;
	struct version *version = NULL;
	uint64_t listed = 0, there = 0;
	const char *model;

	for (unsigned slot = 0; slot < SLOTS; slot++) {
		compare_slot(slot, &counts);
		there += slots[slot].there;
	}
	for (unsigned i = 0; i < MODELS * ALIASES; i++)
		compare_alias(i / ALIASES, i % ALIASES, &counts);
	cr_assert_eq(memcmp(&counts, &real, sizeof(counts)), 0);
	while ((version = registry_next_version(ledger.registry, NULL, version)))
		listed++;
	cr_assert_eq(listed, there);
	for (listed = 0; (alias = registry_next_alias(ledger.registry, NULL, alias, &model));)
		listed++;
	cr_assert_eq(listed, counts.aliases);
	for (unsigned user = 0; user < USERS; user++) {
		cr_assert_eq(quota_used(ledger.quota, user, QUOTA_LEASES), user_leases[user]);
		cr_assert_eq(quota_used(ledger.quota, user, QUOTA_PUBLISHES), user_publishes[user]);
	}
	cr_assert(devices[0]->used == used[0] && devices[1]->used == used[1]);
}

/* ---- the run ---- */

static void clean_up(void)
{
	for (unsigned i = 0; i < LEASES; i++) {
		if (model_leases[i].lease)
			give_back(i);
	}
	registry_remove_aliases(ledger.registry);
	memset(named, 0xff, sizeof(named));
	for (unsigned slot = 0; slot < SLOTS; slot++) {
		struct slot *s = &slots[slot];
		try_fail(slot);
		for (unsigned pin = 0; s->there && pin < PINS; pin++)
			version_unpin(s->version, pins[pin], NULL);
		s->pins = 0;
		if (s->there && s->state != VERSION_FAILED)
			try_retire(slot);
		try_remove(slot);
	}
}

Test(random, operations_do_what_a_simple_model_foretells)
{
	struct registry_counts counts, zero = {0};

	random_begin("daemon_random");
	for (unsigned i = 1; i <= OPERATIONS; i++) {
		random_step(i);
		if (i % 1000 == 0)
			compare();
	}
	cr_expect(failures > 1000 && forgotten > 0 && refused[0] > 100 && refused[1] > 100 && refused[2] > 100,
		  "too tame: %lu failed, %lu forgotten; refused %lu %lu %lu", failures, forgotten, refused[0],
		  refused[1], refused[2]);
	clean_up();
	counts = registry_counts(ledger.registry);
	cr_expect_eq(memcmp(&counts, &zero, sizeof(zero)), 0);
	cr_expect(used[0] == 0 && used[1] == 0);
	cr_expect_eq(publish_count(ledger.publishes), 0);
	ledger_close();
}
