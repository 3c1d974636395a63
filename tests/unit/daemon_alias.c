#include "tests/support/daemon/ledger.h"

static struct swap_result result;

static int swap(const char *alias, struct version *to, const struct version_id *expect)
{
	return registry_swap(ledger.registry, &(struct alias_move){"m", alias, to, expect}, &result,
			     &ledger.error);
}

LedgerTest(alias, current_is_taken_by_the_first_ready_version_only)
{
	struct version *v1 = ledger_ready("m", "v1"), *v2 = ledger_ready("m", "v2");

	cr_expect_eq(ledger_find("m"), v1);
	cr_expect_eq(v1->alias_count, 1);
	cr_expect_eq(v2->alias_count, 0);
	cr_expect_eq(registry_counts(ledger.registry).aliases, 1);
	cr_expect_null(ledger_find("m@previous"));
}

LedgerTest(alias, current_that_was_removed_stays_so_while_another_is_ready)
{
	struct version *v1 = ledger_ready("m", "v1"), *v2, *v3;

	cr_assert_eq(swap("current", NULL, NULL), 0);
	v2 = ledger_ready("m", "v2");
	cr_expect_null(ledger_find("m"));
	registry_retire(ledger.registry, v1, NULL);
	registry_retire(ledger.registry, v2, NULL);
	v3 = ledger_ready("m", "v3");
	cr_expect_eq(ledger_find("m"), v3);
}

LedgerTest(alias, previous_remembers_what_current_named)
{
	struct version *v1 = ledger_ready("m", "v1"), *v2 = ledger_ready("m", "v2");

	cr_assert_eq(swap("current", v2, NULL), 0);
	cr_expect_eq(result.now, v2);
	cr_expect_eq(result.old, v1);
	cr_expect_eq(result.generation, 2);
	cr_expect(result.changed);
	cr_expect_eq(ledger_find("m"), v2);
	cr_expect_eq(ledger_find("m@previous"), v1);
	cr_expect_eq(v1->alias_count, 0, "previous does not count");
	cr_expect_eq(v2->alias_count, 1);
}

LedgerTest(alias, swapping_to_previous_twice_toggles)
{
	struct version *v1 = ledger_ready("m", "v1"), *v2 = ledger_ready("m", "v2");

	swap("current", v2, NULL);
	cr_assert_eq(swap("current", ledger_find("m@previous"), NULL), 0);
	cr_expect_eq(ledger_find("m"), v1);
	cr_expect_eq(ledger_find("m@previous"), v2);
	cr_assert_eq(swap("current", ledger_find("m@previous"), NULL), 0);
	cr_expect_eq(ledger_find("m"), v2);
	cr_expect_eq(ledger_find("m@previous"), v1);
	cr_expect_eq(result.generation, 4);
}

LedgerTest(alias, other_than_current_leaves_previous_alone)
{
	struct version *v1 = ledger_ready("m", "v1"), *v2 = ledger_ready("m", "v2");

	cr_assert_eq(swap("prod", v1, NULL), 0);
	cr_expect_null(result.old);
	cr_expect_eq(result.generation, 1);
	cr_assert_eq(swap("prod", v2, NULL), 0);
	cr_expect_eq(result.old, v1);
	cr_expect_eq(result.generation, 2);
	cr_expect_null(ledger_find("m@previous"));
	cr_expect_eq(v2->alias_count, 1);
}

static const struct alias *alias_named(const char *name)
{
	const struct alias *alias = NULL;
	const char *model;

	while ((alias = registry_next_alias(ledger.registry, "m", alias, &model)))
		if (strcmp(alias->name, name) == 0)
			return alias;
	cr_assert_fail("m has no alias %s", name);
	return NULL;
}

static const struct version *before(const char *name)
{
	return registry_alias_before(alias_named(name));
}

LedgerTest(alias, every_alias_remembers_what_it_named_before)
{
	struct version *v1 = ledger_ready("m", "v1"), *v2 = ledger_ready("m", "v2");

	swap("prod", v1, NULL);
	cr_expect_null(before("prod"), "it names its first version");
	swap("prod", v2, NULL);
	cr_expect_eq(before("prod"), v1);
	swap("prod", v2, NULL);
	cr_expect_eq(before("prod"), v1, "it did not move");
	swap("prod", v1, NULL);
	cr_expect_eq(before("prod"), v2);
	cr_expect_null(before("current"));
	swap("current", v2, NULL);
	cr_expect_eq(before("current"), v1);
	cr_expect_eq(before("prod"), v2);
	cr_expect_eq(v2->alias_count, 1, "what was named before does not count");
	swap("prod", NULL, NULL);
	swap("prod", v1, NULL);
	cr_expect_null(before("prod"), "a removed alias remembers nothing");
}

LedgerTest(alias, what_is_retired_is_not_remembered)
{
	struct version *v1 = ledger_ready("m", "v1"), *v2 = ledger_ready("m", "v2"),
		       *v3 = ledger_ready("m", "v3");

	swap("current", v3, NULL);
	swap("prod", v1, NULL);
	swap("prod", v3, NULL);
	swap("test", v2, NULL);
	swap("test", v3, NULL);
	cr_assert_eq(registry_retire(ledger.registry, v1, NULL), 0, "previous and before don't hold it");
	cr_expect_null(before("current"));
	cr_expect_null(before("prod"));
	cr_expect_eq(before("test"), v2);
}

LedgerTest(alias, swap_to_what_it_names_changes_nothing)
{
	struct version *v1 = ledger_ready("m", "v1");

	cr_assert_eq(swap("current", v1, NULL), 0);
	cr_expect_not(result.changed);
	cr_expect_eq(result.now, v1);
	cr_expect_eq(result.old, v1);
	cr_expect_eq(result.generation, 1);
	cr_expect_null(ledger_find("m@previous"));
}

LedgerTest(alias, removed_leaves_previous)
{
	struct version *v1 = ledger_ready("m", "v1"), *v2 = ledger_ready("m", "v2");

	swap("current", v2, NULL);
	cr_assert_eq(swap("current", NULL, NULL), 0);
	cr_expect_null(result.now);
	cr_expect_eq(result.old, v2);
	cr_expect_eq(result.generation, 0);
	cr_expect(result.changed);
	cr_expect_null(ledger_find("m"));
	cr_expect_eq(ledger_find("m@previous"), v1);
	cr_expect_eq(v2->alias_count, 0);
	expect_error(swap("current", NULL, NULL), -ENOENT, "model \"m\" has no alias \"current\"");
	expect_error(registry_swap(ledger.registry, &(struct alias_move){"x", "current", NULL, NULL}, &result,
				   &ledger.error),
		     -ENOENT, "model \"x\" has no alias \"current\"");
}

LedgerTest(alias, moves_only_from_what_is_expected)
{
	struct version *v1 = ledger_ready("m", "v1"), *v2 = ledger_ready("m", "v2");
	struct version_id nothing = {0};

	expect_error(swap("current", v2, &v2->id), -EBUSY, "m@current names v1 (version ");
	expect_error(swap("current", NULL, &v2->id), -EBUSY, "m@current names v1 (version ");
	expect_error(swap("current", v2, &nothing), -EBUSY, "m@current names v1 (version ");
	expect_error(swap("prod", v2, &v1->id), -EBUSY, "m@prod names nothing now");
	cr_expect_eq(ledger_find("m"), v1);
	cr_expect_eq(swap("prod", v2, &nothing), 0);
	cr_expect_eq(swap("current", v2, &v1->id), 0);
	cr_expect_eq(swap("current", NULL, &v2->id), 0);
}

LedgerTest(alias, names_only_ready_versions_of_its_model)
{
	struct version *version = ledger_building("m", "v1"), *other = ledger_ready("n", "v1");

	expect_error(swap("prod", version, NULL), -EINVAL, "m@v1 is building");
	ledger_fail(version);
	expect_error(swap("prod", version, NULL), -EINVAL, "m@v1 is failed");
	expect_error(swap("prod", other, NULL), -EINVAL, "n@v1 is no version of model \"m\"");
	cr_expect_null(ledger_find("m@prod"));
	cr_expect_eq(registry_counts(ledger.registry).aliases, 1, "n@current only");
}

LedgerTest(alias, names_no_retiring_version)
{
	struct version *v1 = ledger_ready("m", "v1"), *v2 = ledger_ready("m", "v2");

	swap("current", v2, NULL);
	cr_assert_eq(registry_retire(ledger.registry, v1, NULL), 0);
	cr_expect_null(ledger_find("m@previous"), "retiring clears previous");
	expect_error(swap("current", v1, NULL), -EINVAL, "m@v1 is retiring");
	cr_expect_eq(ledger_find("m"), v2);
}

LedgerTest(alias, retiring_keeps_a_previous_that_names_another)
{
	struct version *v1 = ledger_ready("m", "v1"), *v2 = ledger_ready("m", "v2"),
		       *v3 = ledger_ready("m", "v3");

	swap("current", v2, NULL);
	cr_assert_eq(registry_retire(ledger.registry, v3, NULL), 0);
	cr_expect_eq(ledger_find("m@previous"), v1);
}

LedgerTest(alias, refuses_names_that_cannot_be_moved)
{
	struct version *v1 = ledger_ready("m", "v1"), *v2 = ledger_ready("m", "v2");

	expect_error(swap("previous", v2, NULL), -EINVAL, "gpuwmd alone moves the alias \"previous\"");
	expect_error(swap("previous", NULL, NULL), -EINVAL, "gpuwmd alone moves the alias \"previous\"");
	expect_error(swap("a@b", v2, NULL), -EINVAL, "the alias ");
	expect_error(swap("v2", v1, NULL), -EEXIST, "\"v2\" is a tag of model \"m\"");
	cr_expect_eq(registry_alias_allowed(ledger.registry, "unknown", "prod", NULL), 0);
	cr_expect_eq(registry_alias_allowed(ledger.registry, "m", "prod", NULL), 0);
}

LedgerTest(alias, takes_the_tag_of_a_failed_version)
{
	struct version *v1 = ledger_ready("m", "v1"), *failed = ledger_building("m", "prod");
	struct version_id id = failed->id;
	char text[VERSION_ID_TEXT];

	ledger_fail(failed);
	cr_assert_eq(swap("prod", v1, NULL), 0);
	cr_expect_eq(ledger_find("m@prod"), v1);
	hex128_format(id.bytes, text);
	cr_expect_eq(ledger_find(text), failed, "its id still finds it");
	cr_assert_eq(swap("prod", NULL, NULL), 0);
	cr_expect_null(ledger_find("m@prod"));
}

LedgerTest(alias, limit_spares_current_and_previous)
{
	struct version *v1 = ledger_ready("m", "v1"), *v2 = ledger_ready("m", "v2");
	char alias[16];

	for (int i = 0; i < ALIASES_PER_MODEL_MAX; i++) {
		snprintf(alias, sizeof(alias), "a%d", i);
		cr_assert_eq(swap(alias, v1, NULL), 0);
	}
	expect_error(swap("more", v1, NULL), -EDQUOT, "model \"m\" has 64 aliases");
	cr_expect_eq(swap("a0", v2, NULL), 0, "moving is not making");
	cr_expect_eq(swap("current", v2, NULL), 0);
	cr_expect_eq(ledger_find("m@previous"), v1);
	cr_expect_eq(swap("current", NULL, NULL), 0);
	cr_expect_eq(swap("current", v1, NULL), 0);
	cr_expect_eq(swap("a0", NULL, NULL), 0);
	cr_expect_eq(swap("more", v1, NULL), 0);
}

LedgerTest(alias, all_are_gone_through_by_model_and_age)
{
	static const char *const expected[] = {"a@current", "c@current", "c@prod", "c@previous"};
	const struct alias *alias = NULL;
	const char *model;
	char text[NAME_BYTES_MAX * 2 + 2];
	size_t i = 0;

	ledger_ready("c", "v1");
	ledger_building("b", "v1");
	ledger_ready("a", "v1");
	ledger_swap("c", "prod", ledger_find("c@v1"));
	ledger_swap("c", "current", ledger_ready("c", "v2"));
	while ((alias = registry_next_alias(ledger.registry, NULL, alias, &model))) {
		snprintf(text, sizeof(text), "%s@%s", model, alias->name);
		cr_assert_lt(i, 4);
		cr_expect_str_eq(text, expected[i++]);
	}
	cr_expect_eq(i, 4);
	alias = registry_next_alias(ledger.registry, "a", NULL, &model);
	cr_expect_str_eq(model, "a");
	cr_expect_null(registry_next_alias(ledger.registry, "a", alias, &model));
	cr_expect_null(registry_next_alias(ledger.registry, "b", NULL, &model));
	cr_expect_null(registry_next_alias(ledger.registry, "unknown", NULL, &model));
}

LedgerTest(alias, all_are_removed_for_a_drain)
{
	struct version *v1 = ledger_ready("m", "v1"), *v2 = ledger_ready("m", "v2");

	ledger_ready("n", "v1");
	swap("current", v2, NULL);
	swap("prod", v1, NULL);
	cr_expect_eq(registry_counts(ledger.registry).aliases, 4);
	registry_remove_aliases(ledger.registry);
	cr_expect_eq(registry_counts(ledger.registry).aliases, 0);
	cr_expect_eq(v1->alias_count + v2->alias_count, 0);
	cr_expect_eq(registry_retire(ledger.registry, v1, NULL), 0);
	cr_expect_eq(registry_retire(ledger.registry, v2, NULL), 0);
}
