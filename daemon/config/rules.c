#include "rules.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

const char *const rule_right_names[RULE_RIGHTS] = {"attach", "publish", "operate"};

void rules_clear(struct rules *rules)
{
	while (rules->count > 0)
		free(rules->list[--rules->count]);
	free(rules->list);
	rules->list = NULL;
}

static struct rule *insert(struct rules *rules, size_t at, unsigned number)
{
	struct rule **list = reallocarray(rules->list, rules->count + 1, sizeof(*list));
	struct rule *rule = list ? calloc(1, sizeof(*rule)) : NULL;

	if (list)
		rules->list = list;
	if (!rule)
		return NULL;
	rule->number = number;
	memmove(list + at + 1, list + at, (rules->count - at) * sizeof(*list));
	list[at] = rule;
	rules->count++;
	return rule;
}

struct rule *rules_section(struct rules *rules, unsigned number)
{
	size_t at = 0;

	while (at < rules->count && rules->list[at]->number < number)
		at++;
	if (at < rules->count && rules->list[at]->number == number)
		return rules->list[at];
	if (rules->count == MODEL_RULES_MAX) {
		errno = ENOSPC;
		return NULL;
	}
	return insert(rules, at, number);
}

bool rule_name(struct rule *rule, enum rule_right right, struct principal principal)
{
	struct principal *list = rule->named[right].list;
	size_t count = rule->named[right].count;

	for (size_t i = 0; i < count; i++) {
		if (list[i].is_group == principal.is_group && list[i].id == principal.id)
			return true;
	}
	if (count == RULE_NAMES_MAX)
		return false;
	list[count] = principal;
	rule->named[right].count++;
	return true;
}

/* Without FNM_PATHNAME: `*` matches a slash too, as in the library's globs. */
int rules_match(const struct rules *rules, const char *model)
{
	for (size_t i = 0; i < rules->count; i++) {
		if (fnmatch(rules->list[i]->match, model, FNM_NOESCAPE) == 0)
			return (int)i;
	}
	return RULE_NONE;
}

static uint64_t shorter(uint64_t a, uint64_t b)
{
	return a == 0 || (b > 0 && b < a) ? b : a;
}

uint64_t rules_shortest_idle_s(const struct rules *rules)
{
	uint64_t shortest = 0;

	for (size_t i = 0; i < rules->count; i++) {
		const struct rule_tiers *tiers = &rules->list[i]->tiers;

		for (enum tier tier = 0; tier < TIERS; tier++)
			shortest = shorter(shortest, tiers->idle_s[tier]);
	}
	return shortest;
}

bool rules_limit_residents(const struct rules *rules)
{
	size_t i = 0;

	while (i < rules->count && rules->list[i]->tiers.max_resident == 0)
		i++;
	return i < rules->count;
}

bool rules_make_host_copies(const struct rules *rules)
{
	size_t i = 0;

	while (i < rules->count && rules->list[i]->tiers.host_copy != HOST_COPY_YES)
		i++;
	return i < rules->count;
}

static int compare_groups(const void *a, const void *b)
{
	const gid_t x = *(const gid_t *)a, y = *(const gid_t *)b;

	return x < y ? -1 : x > y;
}

static bool rule_names_user(const struct rule *rule, enum rule_right right, uid_t uid, const gid_t *groups,
			    size_t count)
{
	for (size_t i = 0; i < rule->named[right].count; i++) {
		const struct principal *p = &rule->named[right].list[i];

		if (!p->is_group && p->id == uid)
			return true;
		if (p->is_group && count > 0 && bsearch(&p->id, groups, count, sizeof(*groups), compare_groups))
			return true;
	}
	return false;
}

struct rules_named rules_named(const struct rules *rules, uid_t uid, gid_t *groups, size_t count)
{
	struct rules_named named = {0};

	if (count > 0)
		qsort(groups, count, sizeof(*groups), compare_groups);
	for (size_t i = 0; i < rules->count; i++) {
		for (int right = 0; right < RULE_RIGHTS; right++) {
			if (rule_names_user(rules->list[i], right, uid, groups, count))
				named.rights[right] |= UINT64_C(1) << i;
		}
	}
	return named;
}
