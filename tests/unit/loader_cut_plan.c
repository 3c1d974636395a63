/* The text of a cut plan: what is read, what is refused, and which names a glob matches. */
#include "loader/cut/cut.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cut_plan plan;
static struct error error;

static void teardown(void)
{
	cut_plan_clear(&plan);
}

TestSuite(cut_plan, .fini = teardown);

static void expect_refused(const char *text, const char *message)
{
	cr_expect_eq(cut_plan_parse(text, &plan, &error), -EINVAL, "%s", text);
	cr_expect_str_eq(error.message, message);
	cr_expect_null(plan.rules);
}

Test(cut_plan, reads_rules_blanks_and_comments)
{
	cr_assert_eq(cut_plan_parse("# a plan\n"
				    "\n"
				    "\t*.q.weight  split 0 # rows\r\n"
				    "*.o.weight split 12 optional\n"
				    "norm copy\n"
				    "head rank 3 optional\n"
				    "*.k.weight split 0 of num_key_value_heads optional",
				    &plan, &error),
		     0, "%s", error.message);
	cr_assert_eq(plan.count, 5);
	cr_expect_str_eq(plan.rules[0].glob, "*.q.weight");
	cr_expect_eq(plan.rules[0].action, CUT_SPLIT);
	cr_expect_eq(plan.rules[0].line, 3);
	cr_expect_not(plan.rules[0].optional);
	cr_expect_eq(plan.rules[1].number, 12);
	cr_expect(plan.rules[1].optional);
	cr_expect_eq(plan.rules[2].action, CUT_COPY);
	cr_expect_not(plan.rules[2].optional);
	cr_expect_eq(plan.rules[3].action, CUT_RANK);
	cr_expect_eq(plan.rules[3].number, 3);
	cr_expect(plan.rules[3].optional);
	cr_expect_null(plan.rules[0].key);
	cr_expect_str_eq(plan.rules[4].key, "num_key_value_heads");
	cr_expect_eq(plan.rules[4].action, CUT_SPLIT);
	cr_expect(plan.rules[4].optional);
}

Test(cut_plan, takes_a_hash_inside_of_a_word_as_it_is)
{
	cr_assert_eq(cut_plan_parse("a#b copy", &plan, &error), 0);
	cr_expect_str_eq(plan.rules[0].glob, "a#b");
}

Test(cut_plan, refuses_what_is_no_rule)
{
	expect_refused("", "the cut plan has no rule");
	expect_refused("# nothing\n\n", "the cut plan has no rule");
	expect_refused("a copy\nb\n", "line 2 of the cut plan has a glob and no action: \"b\"");
	expect_refused("a # copy", "line 1 of the cut plan has a glob and no action: \"a\"");
	expect_refused("a cut 0", "line 1 of the cut plan has an unknown action: \"cut\"");
	expect_refused("a Copy", "line 1 of the cut plan has an unknown action: \"Copy\"");
	expect_refused("a split", "line 1 of the cut plan lacks the number behind: \"split\"");
	expect_refused("a split x", "line 1 of the cut plan lacks the number behind: \"split\"");
	expect_refused("a split -1", "line 1 of the cut plan lacks the number behind: \"split\"");
	expect_refused("a split 0x1", "line 1 of the cut plan lacks the number behind: \"split\"");
	expect_refused("a split 1000000", "line 1 of the cut plan lacks the number behind: \"split\"");
	expect_refused("a rank optional", "line 1 of the cut plan lacks the number behind: \"rank\"");
	expect_refused("a split 0 of", "line 1 of the cut plan lacks the key behind: \"of\"");
	expect_refused("a copy of b", "line 1 of the cut plan has a word too many: \"of\"");
	expect_refused("a copy 1", "line 1 of the cut plan has a word too many: \"1\"");
	expect_refused("a copy optional b", "line 1 of the cut plan has a word too many: \"b\"");
	expect_refused("a split 1 optional optional",
		       "line 1 of the cut plan has a word too many: \"optional\"");
	expect_refused("a split 1 2 3 4 5 6", "line 1 of the cut plan has a word too many: \"2\"");
}

Test(cut_plan, has_256_rules_at_most)
{
	char text[4096] = "";

	for (int i = 0; i < CUT_RULES_MAX; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "t%d copy\n", i);
	cr_assert_eq(cut_plan_parse(text, &plan, &error), 0, "%s", error.message);
	cr_expect_eq(plan.count, CUT_RULES_MAX);
	cut_plan_clear(&plan);
	strcat(text, "# this is none\none copy\n");
	expect_refused(text, "line 258 of the cut plan: a plan has at most 256 rules");
}

static bool matches(const char *glob, const char *name)
{
	char text[100];
	size_t found;
	bool matched;

	snprintf(text, sizeof(text), "%s copy", glob);
	cr_assert_eq(cut_plan_parse(text, &plan, &error), 0, "%s", error.message);
	matched = cut_plan_find(&plan, name, &found, &error) == 0;
	cut_plan_clear(&plan);
	return matched;
}

Test(cut_plan, knows_only_stars)
{
	cr_expect(matches("a.b", "a.b"));
	cr_expect_not(matches("a.b", "a.bc"));
	cr_expect_not(matches("a.b", "a."));
	cr_expect_not(matches("a?b", "a.b"));
	cr_expect(matches("a[1]\\?b", "a[1]\\?b"));
	cr_expect(matches("*", "any.name"));
	cr_expect(matches("*", ""));
	cr_expect(matches("a*b", "ab"));
	cr_expect(matches("a*b", "a.b.c.b"));
	cr_expect_not(matches("a*b", "a.b.c"));
	cr_expect(matches("*a*a*", "xaya"));
	cr_expect_not(matches("*a*a*", "xay"));
	cr_expect(matches("**a**", "a"));
	cr_expect_not(matches("a", "A"));
	cr_expect(matches("*.weight", "w\xc3\xb6rt.weight"));
}

Test(cut_plan, finds_the_one_rule_of_a_name)
{
	size_t found = 99;

	cr_assert_eq(cut_plan_parse("a.* copy\n\n*.b split 0\n", &plan, &error), 0);
	cr_assert_eq(cut_plan_find(&plan, "c.b", &found, &error), 0);
	cr_expect_eq(found, 1);
	cr_expect_eq(cut_plan_find(&plan, "c", &found, &error), -EINVAL);
	cr_expect_str_eq(error.message, "no rule of the cut plan matches the tensor \"c\"");
	cr_expect_eq(cut_plan_find(&plan, "a.b", &found, &error), -EINVAL);
	cr_expect_str_eq(error.message, "lines 1 (a.*) and 3 (*.b) of the cut plan match the tensor \"a.b\"");
}
