#include "cut.h"

#include "../../base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLANKS " \t\r"
#define WORDS_MAX 6 /* of a rule: GLOB split D of KEY optional */
#define RULE_FORMS                                                                                             \
	"a rule is: GLOB split D, GLOB split D of KEY, GLOB copy or GLOB rank R; then perhaps optional"

/* ---- lines --------------------------------------------------------------- */

/* Splits a line into words, and ends each of them with a zero byte. Returns how many there are, at
 * most WORDS_MAX + 1. */
static size_t split_words(char *line, const char *words[WORDS_MAX + 1])
{
	size_t count = 0;
	char *at = line + strspn(line, BLANKS);

	while (*at && *at != '#' && count <= WORDS_MAX) {
		words[count++] = at;
		at += strcspn(at, BLANKS);
		if (*at)
			*at++ = '\0';
		at += strspn(at, BLANKS);
	}
	return count;
}

/* Reads a decimal number of at most six digits. */
static bool read_number(const char *text, uint32_t *ret)
{
	size_t digits = strspn(text, "0123456789");

	if (digits == 0 || digits > 6 || text[digits])
		return false;
	*ret = (uint32_t)strtoul(text, NULL, 10);
	return true;
}

static int bad_line(const struct cut_rule *rule, const char *what, const char *word, struct error *error)
{
	return error_set(error, -EINVAL, RULE_FORMS, "line %u of the cut plan %s%s%.*s%s", rule->line, what,
			 word ? ": \"" : "", word ? text_shown(word) : 0, word ? word : "", word ? "\"" : "");
}

/* Reads the words behind the glob. */
static int read_action(const char *const *words, size_t count, struct cut_rule *rule, struct error *error)
{
	static const char *const names[] = {[CUT_SPLIT] = "split", [CUT_COPY] = "copy", [CUT_RANK] = "rank"};
	size_t used = 1, action = 0;

	if (count == 0)
		return bad_line(rule, "has a glob and no action", rule->glob, error);
	while (action < sizeof(names) / sizeof(names[0]) && strcmp(words[0], names[action]) != 0)
		action++;
	if (action == sizeof(names) / sizeof(names[0]))
		return bad_line(rule, "has an unknown action", words[0], error);
	rule->action = (enum cut_action)action;
	if (rule->action != CUT_COPY && (count < 2 || !read_number(words[used++], &rule->number)))
		return bad_line(rule, "lacks the number behind", words[0], error);
	if (rule->action == CUT_SPLIT && used < count && strcmp(words[used], "of") == 0) {
		if (++used == count)
			return bad_line(rule, "lacks the key behind", words[used - 1], error);
		rule->key = words[used++];
	}
	rule->optional = used < count && strcmp(words[used], "optional") == 0;
	used += rule->optional;
	return used == count ? 0 : bad_line(rule, "has a word too many", words[used], error);
}

static int read_line(char *line, unsigned number, struct cut_plan *plan, struct error *error)
{
	const char *words[WORDS_MAX + 1];
	size_t count = split_words(line, words);
	struct cut_rule *rule = &plan->rules[plan->count];

	if (count == 0)
		return 0;
	if (plan->count == CUT_RULES_MAX)
		return error_set(error, -EINVAL, "one glob may stand for many tensors",
				 "line %u of the cut plan: a plan has at most %d rules", number, CUT_RULES_MAX);
	*rule = (struct cut_rule){.glob = words[0], .line = number};
	plan->count++;
	return read_action(words + 1, count - 1, rule, error);
}

static int read_lines(struct cut_plan *plan, struct error *error)
{
	char *next = plan->text;
	unsigned number = 0;
	int r = 0;

	while (r == 0 && next) {
		char *line = strsep(&next, "\n");

		r = read_line(line, ++number, plan, error);
	}
	if (r == 0 && plan->count == 0)
		r = error_set(error, -EINVAL, RULE_FORMS, "the cut plan has no rule");
	return r;
}

int cut_plan_parse(const char *text, struct cut_plan *ret, struct error *error)
{
	struct cut_plan plan = {
		.rules = calloc(CUT_RULES_MAX, sizeof(*plan.rules)),
		.text = strdup(text),
	};
	int r = plan.rules && plan.text
			? read_lines(&plan, error)
			: error_set(error, -ENOMEM, NULL, "no room for the cut plan's %zu bytes", strlen(text));

	if (r < 0)
		cut_plan_clear(&plan);
	else
		*ret = plan;
	return r;
}

void cut_plan_clear(struct cut_plan *plan)
{
	free(plan->rules);
	free(plan->text);
	*plan = (struct cut_plan){0};
}

/* ---- names --------------------------------------------------------------- */

/* If the rest of the glob does not match, the last star takes one more byte of the name. */
static bool matches(const char *glob, const char *name)
{
	const char *star = NULL, *taken = NULL;

	while (*name) {
		if (*glob == '*') {
			star = glob++;
			taken = name;
		} else if (*glob == *name) {
			glob++;
			name++;
		} else if (star) {
			glob = star + 1;
			name = ++taken;
		} else {
			return false;
		}
	}
	return glob[strspn(glob, "*")] == '\0';
}

bool cut_rule_matches(const struct cut_rule *rule, const char *name)
{
	return matches(rule->glob, name);
}

/* Returns the position of the first rule from `from` on that matches, or the number of rules. */
static size_t next_match(const struct cut_plan *plan, const char *name, size_t from)
{
	while (from < plan->count && !matches(plan->rules[from].glob, name))
		from++;
	return from;
}

int cut_plan_find(const struct cut_plan *plan, const char *name, size_t *ret, struct error *error)
{
	size_t first = next_match(plan, name, 0), second;

	if (first == plan->count)
		return error_set(error, -EINVAL, "add a rule for it, such as: NAME copy",
				 "no rule of the cut plan matches the tensor \"%.*s\"", text_shown(name), name);
	second = next_match(plan, name, first + 1);
	if (second < plan->count)
		return error_set(error, -EINVAL,
				 "exactly one rule must match each tensor: change one of these rules",
				 "lines %u (%s) and %u (%s) of the cut plan match the tensor \"%.*s\"",
				 plan->rules[first].line, plan->rules[first].glob, plan->rules[second].line,
				 plan->rules[second].glob, text_shown(name), name);
	*ret = first;
	return 0;
}
