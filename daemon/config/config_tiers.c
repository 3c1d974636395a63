/* Tiers: the keys of [tiers], and those of [model.N] that say when versions leave their devices. */
#include "config_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEPARATORS ", \t"
#define TIME_DIGITS_MAX 9 /* in seconds 31 years; in days it fits 64 bits too */
#define IDLE_EXAMPLE "such as: idle = 30m host, 2h files"

/* ---- times ---- */

static uint64_t seconds_of(char unit)
{
	switch (unit) {
	case '\0':
	case 's':
		return 1;
	case 'm':
		return 60;
	case 'h':
		return 3600;
	case 'd':
		return 86400;
	default:
		return 0;
	}
}

/* "90", "90s", "30m", "2h", "7d". False: the text is none of these. */
static bool parse_time(const char *text, uint64_t *ret_seconds)
{
	const size_t digits = strspn(text, "0123456789");
	uint64_t unit;

	if (digits == 0 || digits > TIME_DIGITS_MAX || (text[digits] && text[digits + 1]))
		return false;
	unit = seconds_of(text[digits]);
	*ret_seconds = strtoull(text, NULL, 10) * unit;
	return unit > 0;
}

int config_set_time(struct config *config, const struct config_key *row, const char *key, const char *value,
		    char why[CONFIG_WHY_BYTES])
{
	uint64_t seconds;

	(void)key;
	if (parse_time(value, &seconds) && seconds >= row->min && seconds <= row->max) {
		*(uint64_t *)((char *)config + row->offset) = seconds;
		return 0;
	}
	snprintf(why, CONFIG_WHY_BYTES, "is no time from %llu to %llu seconds, such as 10s, 5m or 2h",
		 (unsigned long long)row->min, (unsigned long long)row->max);
	return -EINVAL;
}

/* ---- [tiers] ---- */

int config_set_folder(struct config *config, const struct config_key *row, const char *key, const char *value,
		      char why[CONFIG_WHY_BYTES])
{
	char *folder = (char *)config + row->offset;
	size_t bytes = strlen(value);

	(void)key;
	if (strcmp(value, "none") == 0) {
		folder[0] = '\0';
		return 0;
	}
	while (bytes > 1 && value[bytes - 1] == '/')
		bytes--;
	if (value[0] != '/' || bytes == 1 || bytes > PATH_BYTES_MAX) {
		snprintf(why, CONFIG_WHY_BYTES,
			 "is neither none nor an absolute path of a folder with at most %d bytes",
			 PATH_BYTES_MAX);
		return -EINVAL;
	}
	snprintf(folder, PATH_BYTES_MAX + 1, "%.*s", (int)bytes, value);
	return 0;
}

int config_set_yes(struct config *config, const struct config_key *row, const char *key, const char *value,
		   char why[CONFIG_WHY_BYTES])
{
	const bool yes = strcmp(value, "yes") == 0;

	(void)key;
	if (!yes && strcmp(value, "no") != 0) {
		snprintf(why, CONFIG_WHY_BYTES, "is neither yes nor no");
		return -EINVAL;
	}
	*(bool *)((char *)config + row->offset) = yes;
	return 0;
}

/* ---- [model.N] ---- */

/* Where a version goes when it leaves its devices. */
static bool is_lower_tier(const char *word, enum tier *ret)
{
	return tier_find(word, ret) == 0 && !tier_is_resident(*ret);
}

static int set_idle(struct rule_tiers *tiers, const char *section, const char *time, const char *word,
		    struct error *error)
{
	char names[TIERS_TEXT];
	uint64_t seconds;
	enum tier tier;

	if (!parse_time(time, &seconds) || seconds == 0)
		return error_set(error, -EINVAL, IDLE_EXAMPLE,
				 "[%s] idle: \"%.256s\" is no time from 1 second on", section, time);
	if (!word || !is_lower_tier(word, &tier))
		return error_set(error, -EINVAL, IDLE_EXAMPLE,
				 "[%s] idle: behind the time %.256s stands \"%.256s\", not %s", section, time,
				 word ? word : "", tier_list(ON_DEVICE + 1, names));
	if (tiers->idle_s[tier])
		return error_set(error, -EINVAL, "leave one of them out", "[%s] idle has two times for %s",
				 section, word);
	tiers->idle_s[tier] = seconds;
	return 0;
}

static int set_idles(struct rule_tiers *tiers, const char *section, const char *value, struct error *error)
{
	char *copy = strdup(value), *rest = NULL;
	const char *time;
	int r = 0;

	if (!copy)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	time = strtok_r(copy, SEPARATORS, &rest);
	if (!time)
		r = error_set(error, -EINVAL, IDLE_EXAMPLE, "[%s] idle has no time", section);
	for (; r == 0 && time; time = strtok_r(NULL, SEPARATORS, &rest))
		r = set_idle(tiers, section, time, strtok_r(NULL, SEPARATORS, &rest), error);
	free(copy);
	return r;
}

static int set_max_resident(struct rule_tiers *tiers, const char *section, const char *value,
			    struct error *error)
{
	const size_t digits = strspn(value, "0123456789");
	const unsigned long number = digits > 0 && digits < 10 ? strtoul(value, NULL, 10) : 0;

	if (value[digits] || number == 0 || number > VERSIONS_MAX)
		return error_set(error, -EINVAL, "without the key any number of versions may be resident",
				 "[%s] max_resident = %.256s: is no number from 1 to %d", section, value,
				 VERSIONS_MAX);
	if (tiers->max_resident)
		return error_set(error, -EINVAL, "leave one of them out", "[%s] has max_resident twice",
				 section);
	tiers->max_resident = number;
	return 0;
}

/* "never", "host", "files", "host own", "files own". */
static int set_evict(struct rule_tiers *tiers, const char *section, const char *value, struct error *error)
{
	const size_t word = strcspn(value, SEPARATORS);
	const char *owner = value + word + strspn(value + word, SEPARATORS);
	char tier[NAME_BYTES_MAX + 1], names[TIERS_TEXT];
	bool goes;

	if (tiers->evict_said)
		return error_set(error, -EINVAL, "leave one of them out", "[%s] has evict twice", section);
	snprintf(tier, sizeof(tier), "%.*s", (int)(word < sizeof(tier) ? word : sizeof(tier) - 1), value);
	goes = is_lower_tier(tier, &tiers->evict);
	tiers->evict_own = strcmp(owner, "own") == 0;
	tiers->evict_said = true;
	if ((goes || strcmp(value, "never") == 0) && (!owner[0] || tiers->evict_own))
		return 0;
	return error_set(error, -EINVAL,
			 "\"own\" behind the tier: only to make room for versions of the same owner",
			 "[%s] evict = %.256s: is neither never nor a tier, which is %s, with or without own",
			 section, value, tier_list(ON_DEVICE + 1, names));
}

static int set_host_copy(struct rule_tiers *tiers, const char *section, const char *value, struct error *error)
{
	static const char *const words[] = {
		[HOST_COPY_ON_DEMOTE] = "on-demote", [HOST_COPY_YES] = "yes", [HOST_COPY_NO] = "no"};

	if (tiers->host_copy_said)
		return error_set(error, -EINVAL, "leave one of them out", "[%s] has host_copy twice", section);
	tiers->host_copy_said = true;
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		if (strcmp(value, words[i]) != 0)
			continue;
		tiers->host_copy = (enum host_copy)i;
		return 0;
	}
	return error_set(
		error, -EINVAL,
		"yes: gpuwmd makes a copy of each version; on-demote: what was in host memory keeps its copy there",
		"[%s] host_copy = %.256s: is neither yes nor on-demote nor no", section, value);
}

int config_set_rule_tiers(struct rule *rule, const char *section, const char *key, const char *value,
			  struct error *error)
{
	if (strcmp(key, "idle") == 0)
		return set_idles(&rule->tiers, section, value, error);
	if (strcmp(key, "max_resident") == 0)
		return set_max_resident(&rule->tiers, section, value, error);
	if (strcmp(key, "evict") == 0)
		return set_evict(&rule->tiers, section, value, error);
	if (strcmp(key, "host_copy") == 0)
		return set_host_copy(&rule->tiers, section, value, error);
	return -ENOKEY;
}

int config_check_rule_tiers(const struct rule *rule, struct error *error)
{
	const uint64_t *idle = rule->tiers.idle_s;

	for (enum tier low = 0; low < TIERS; low++) {
		for (enum tier high = 0; high < low; high++) {
			if (idle[low] && idle[high] >= idle[low])
				return error_set(
					error, -EINVAL, "the time for the lower tier is the longer one",
					"[model.%u] idle: versions would leave for %s after %llu s, and for "
					"%s after %llu s",
					rule->number, tier_name(low), (unsigned long long)idle[low],
					tier_name(high), (unsigned long long)idle[high]);
		}
	}
	return 0;
}
