/* The sections [model.N], and the users and groups that they name. */
#include "config_internal.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- users and groups ---- */

static bool parse_id(const char *text, uint32_t *ret)
{
	size_t digits = strspn(text, "0123456789");
	unsigned long long id;

	if (digits == 0 || digits > 10 || text[digits] != '\0' || (text[0] == '0' && digits > 1))
		return false; /* 010: eight or ten? */
	id = strtoull(text, NULL, 10);
	*ret = (uint32_t)id;
	return id < UINT32_MAX; /* which is no user's and no group's */
}

bool user_find(const char *name, uint32_t *ret_id)
{
	const struct passwd *user;

	if (parse_id(name, ret_id))
		return true;
	/* cppcheck-suppress getpwnamCalled ; one thread */
	user = getpwnam(name);
	if (user)
		*ret_id = user->pw_uid;
	return user;
}

bool group_find(const char *name, uint32_t *ret_id)
{
	const struct group *group;

	if (parse_id(name, ret_id))
		return true;
	/* cppcheck-suppress getgrnamCalled ; one thread */
	group = getgrnam(name);
	if (group)
		*ret_id = group->gr_gid;
	return group;
}

/* ---- sections ---- */

#define SECTION_PREFIX "model."
#define SEPARATORS ", \t"
#define PRINCIPAL_BYTES 256 /* "@" and the longest name that Linux has; LOGIN_NAME_MAX is 256 */

bool config_is_rule(const char *section)
{
	return strncmp(section, SECTION_PREFIX, strlen(SECTION_PREFIX)) == 0;
}

static int section_of(struct config *config, const char *section, struct rule **ret, struct error *error)
{
	const char *digits = section + strlen(SECTION_PREFIX);
	size_t count = strspn(digits, "0123456789");
	unsigned long number = count > 0 && count < 10 ? strtoul(digits, NULL, 10) : 0;

	if (number == 0 || number > MODEL_RULE_NUMBER_MAX || digits[count] != '\0' || digits[0] == '0')
		return error_set(
			error, -EINVAL, "[model.1], [model.2], …: of those that match the lowest counts",
			"[%s]: N in [model.N] is no number from 1 to %d", section, MODEL_RULE_NUMBER_MAX);
	*ret = rules_section(&config->rules, (unsigned)number);
	if (!*ret && errno == ENOSPC)
		return error_set(error, -EINVAL, "one section may name several users and groups",
				 "[%s] is one too many: at most %d sections [model.N] are possible", section,
				 MODEL_RULES_MAX);
	return *ret ? 0 : error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
}

/* ---- names ---- */

static int add_name(struct rule *rule, enum rule_right right, const char *section, const char *name,
		    struct error *error)
{
	const char *key = rule_right_names[right];
	struct principal principal = {.is_group = name[0] == '@'};
	const bool is_found =
		principal.is_group ? group_find(name + 1, &principal.id) : user_find(name, &principal.id);

	if (!is_found)
		return error_set(
			error, -EINVAL,
			"name users and @groups of this machine, or their numbers, without leading zeros",
			"[%s] %s: there is no %s \"%.*s\" here", section, key,
			principal.is_group ? "group" : "user", PRINCIPAL_BYTES, name + principal.is_group);
	if (!rule_name(rule, right, principal))
		return error_set(error, -EINVAL, "name a group that they are members of",
				 "[%s] %s names more than %d users and groups", section, key, RULE_NAMES_MAX);
	return 0;
}

static int add_names(struct rule *rule, enum rule_right right, const char *section, const char *value,
		     struct error *error)
{
	char *copy = strdup(value), *rest = NULL;
	unsigned count = 0;
	int r = 0;

	if (!copy)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	for (const char *name = strtok_r(copy, SEPARATORS, &rest); r == 0 && name;
	     name = strtok_r(NULL, SEPARATORS, &rest), count++)
		r = add_name(rule, right, section, name, error);
	free(copy);
	if (r == 0 && count == 0)
		return error_set(error, -EINVAL, "to let nobody but operators, name root",
				 "[%s] %s names nobody", section, rule_right_names[right]);
	return r;
}

/* ---- keys ---- */

static int set_match(struct rule *rule, const char *section, const char *value, struct error *error)
{
	const char *wrong = pattern_wrong(value);

	if (value[0] == '\0' || strlen(value) > RULE_MATCH_BYTES_MAX)
		return error_set(error, -EINVAL, "a pattern such as llama/*",
				 "[%s] match has %zu bytes; 1 to %d are possible", section, strlen(value),
				 RULE_MATCH_BYTES_MAX);
	if (wrong)
		return error_set(
			error, -EINVAL,
			"names have letters, digits, '.', '_', '-' and '/'; * stands for any, ? for one, "
			"[ab], [a-z] and [!ab] for one of a set; another pattern needs another section",
			"[%s] match: no model can match \"%.256s\", which %s", section, value, wrong);
	if (rule->match[0])
		return error_set(error, -EINVAL, "another pattern needs another section",
				 "[%s] has two patterns: %.256s and %.256s", section, rule->match, value);
	strcpy(rule->match, value);
	return 0;
}

static int set_share(struct rule *rule, const char *section, const char *value, struct error *error)
{
	const size_t digits = strspn(value, "0123456789");
	const unsigned long percent = digits > 0 && digits <= 3 ? strtoul(value, NULL, 10) : 0;

	if (percent < 1 || percent > 100 || strcmp(value + digits, "%") != 0)
		return error_set(error, -EINVAL, "without the key a user's regions may have half",
				 "[%s] share = %.256s: is not 1%% to 100%%", section, value);
	if (rule->share)
		return error_set(error, -EINVAL, "leave one of them out", "[%s] has share twice", section);
	rule->share = (unsigned)percent;
	return 0;
}

int config_set_rule(struct config *config, const char *section, const char *key, const char *value,
		    struct error *error)
{
	struct rule *rule;
	int right = 0, r;

	r = section_of(config, section, &rule, error);
	if (r < 0)
		return r;
	if (strcmp(key, "match") == 0)
		return set_match(rule, section, value, error);
	if (strcmp(key, "share") == 0)
		return set_share(rule, section, value, error);
	r = config_set_rule_tiers(rule, section, key, value, error);
	if (r != -ENOKEY)
		return r;
	while (right < RULE_RIGHTS && strcmp(key, rule_right_names[right]) != 0)
		right++;
	if (right == RULE_RIGHTS)
		return config_no_key(MODEL_SECTION, key, error);
	return add_names(rule, right, section, value, error);
}

int config_check_rules(const struct config *config, struct error *error)
{
	for (size_t i = 0; i < config->rules.count; i++) {
		int r = config_check_rule_tiers(config->rules.list[i], error);

		if (r < 0)
			return r;
		if (!config->rules.list[i]->match[0])
			return error_set(error, -EINVAL, "match = PATTERN says which models it is about",
					 "[model.%u] has no match", config->rules.list[i]->number);
	}
	return 0;
}
