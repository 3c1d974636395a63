/* The table of keys, which the file, the flags and --help are made of. */
#ifndef GPUWM_DAEMON_CONFIG_INTERNAL_H
#define GPUWM_DAEMON_CONFIG_INTERNAL_H

#include "config.h"

#include <stddef.h>

#define CONFIG_WHY_BYTES 160

struct config_key {
	const char *section;
	const char *key; /* NULL: any; the key is a device */
	const char *flag; /* without "--"; NULL: has none of its own */
	const char *value; /* what the value is, for people */
	const char *help;
	/* 0; -EINVAL with `why` ("is no absolute path"); -ENOMEM. */
	int (*set)(struct config *config, const struct config_key *row, const char *key, const char *value,
		   char why[CONFIG_WHY_BYTES]);
	size_t offset; /* of the field */
	uint64_t min, max; /* numbers; max 0: no number */
};

extern const struct config_key config_keys[];
extern const size_t config_key_count;

void config_clear_roots(struct config *config);
/* -EINVAL with the keys, or the sections, that there are. */
int config_no_key(const char *section, const char *key, struct error *error);

/* How the table calls every section [model.N]; their keys are set by what follows. */
#define MODEL_SECTION "model.N"
bool config_is_rule(const char *section);
/* In config_tiers.c: the keys of [tiers], and of [model.N] those about tiers. Returns -ENOKEY if `key` is none of those. */
int config_set_rule_tiers(struct rule *rule, const char *section, const char *key, const char *value,
			  struct error *error);
/* Fails with -EINVAL if the times of a section's `idle` contradict each other. */
int config_check_rule_tiers(const struct rule *rule, struct error *error);
int config_set_folder(struct config *config, const struct config_key *row, const char *key, const char *value,
		      char why[CONFIG_WHY_BYTES]);
int config_set_yes(struct config *config, const struct config_key *row, const char *key, const char *value,
		   char why[CONFIG_WHY_BYTES]);
int config_set_time(struct config *config, const struct config_key *row, const char *key, const char *value,
		    char why[CONFIG_WHY_BYTES]);
/* The names of users and groups become numbers here: at start and at a reload, never while requests wait. -EINVAL names
 * the section, the key and the name; -ENOMEM. */
int config_set_rule(struct config *config, const char *section, const char *key, const char *value,
		    struct error *error);
/* -EINVAL: a section without a pattern. */
int config_check_rules(const struct config *config, struct error *error);

/* In pattern.c. Returns NULL if a model's name can match the pattern, else what is wrong with the pattern, as the end of a sentence. A
 * pattern that matches no name is refused, since its section would protect nothing. */
const char *pattern_wrong(const char *pattern);

#endif
