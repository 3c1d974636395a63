/* The rules themselves: which section counts, and who is named in it. */
#include "daemon/config/rules.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct rules rules;

static void clear(void)
{
	rules_clear(&rules);
	cr_expect_eq(rules.count, 0);
}

TestSuite(rules, .fini = clear);

static struct rule *section(unsigned number, const char *match)
{
	struct rule *rule = rules_section(&rules, number);

	cr_assert(rule);
	snprintf(rule->match, sizeof(rule->match), "%s", match);
	return rule;
}

static unsigned matched(const char *model)
{
	int position = rules_match(&rules, model);

	return position == RULE_NONE ? 0 : rules.list[position]->number;
}

Test(rules, the_lowest_number_that_matches_counts)
{
	section(20, "llama/*");
	section(3, "llama/secret/*");
	section(100, "*");
	cr_expect_eq(matched("llama/secret/a"), 3);
	cr_expect_eq(matched("llama/open"), 20);
	cr_expect_eq(matched("llama"), 100);
	cr_expect_eq(matched("mistral"), 100);
}

Test(rules, without_a_section_nothing_matches)
{
	cr_expect_eq(rules_match(&rules, "m"), RULE_NONE);
	section(1, "llama");
	cr_expect_eq(rules_match(&rules, "m"), RULE_NONE);
	cr_expect_eq(rules_match(&rules, "llama2"), RULE_NONE);
}

Test(rules, a_star_matches_slashes_and_a_bracket_a_set)
{
	section(1, "a*z");
	section(2, "m[12]?");
	cr_expect_eq(matched("a/b/z"), 1);
	cr_expect_eq(matched("m1x"), 2);
	cr_expect_eq(matched("m3x"), 0);
}

Test(rules, a_section_counts_for_versions_without_a_name)
{
	section(1, "~1000");
	section(2, "~*");
	section(3, "*");
	cr_expect_eq(matched("~1000"), 1);
	cr_expect_eq(matched("~1001"), 2);
	cr_expect_eq(matched("m"), 3);
}

Test(rules, a_section_is_made_once)
{
	struct rule *rule = section(7, "x");

	cr_expect_eq(rules_section(&rules, 7), rule);
	cr_expect_eq(rules.count, 1);
}

Test(rules, sections_and_names_have_an_end)
{
	struct rule *rule = NULL;

	for (unsigned i = 1; i <= MODEL_RULES_MAX; i++)
		rule = section(i, "x");
	cr_expect_null(rules_section(&rules, MODEL_RULES_MAX + 1));
	cr_expect_eq(errno, ENOSPC);
	for (uint32_t i = 0; i < RULE_NAMES_MAX; i++)
		cr_expect(rule_name(rule, RULE_ATTACH, (struct principal){.id = i}));
	cr_expect(rule_name(rule, RULE_ATTACH, (struct principal){.id = 5}), "it is there already");
	cr_expect_not(rule_name(rule, RULE_ATTACH, (struct principal){.id = RULE_NAMES_MAX}));
	cr_expect(rule_name(rule, RULE_PUBLISH, (struct principal){.id = 5}), "each key has its own");
}

Test(rules, a_user_is_named_by_number_or_group)
{
	struct rule *first = section(1, "a"), *second = section(2, "b");
	gid_t groups[] = {90, 30, 60};
	struct rules_named named;

	rule_name(first, RULE_ATTACH, (struct principal){.id = 1000});
	rule_name(second, RULE_PUBLISH, (struct principal){.is_group = true, .id = 60});
	rule_name(first, RULE_PUBLISH, (struct principal){.id = 30});
	rule_name(second, RULE_OPERATE, (struct principal){.is_group = true, .id = 1000});
	named = rules_named(&rules, 1000, groups, 3);
	cr_expect_eq(named.rights[RULE_ATTACH], 1);
	cr_expect_eq(named.rights[RULE_PUBLISH], 2, "the user 30 is not the group 30");
	cr_expect_eq(named.rights[RULE_OPERATE], 0, "a user's number is no group's");
	named = rules_named(&rules, 60, NULL, 0);
	cr_expect_eq(named.rights[RULE_PUBLISH], 0, "a group's number is no user's");
}

Test(rules, the_last_section_has_a_bit)
{
	struct rule *rule = NULL;

	for (unsigned i = 1; i <= MODEL_RULES_MAX; i++)
		rule = section(i, "x");
	rule_name(rule, RULE_OPERATE, (struct principal){.id = 7});
	cr_expect_eq(rules_named(&rules, 7, NULL, 0).rights[RULE_OPERATE], UINT64_C(1) << 63);
}
