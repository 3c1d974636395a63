/* Rules for models: the sections [model.N] of the configuration. Knows no sockets, no users' names and no loop.
 *
 * The section with the lowest number whose pattern matches a model's name counts for the model; later ones do not. */
#ifndef GPUWM_DAEMON_RULES_H
#define GPUWM_DAEMON_RULES_H

#include "../../proto/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What a section gives to those whom it names; the keys of the section. */
enum rule_right { RULE_ATTACH, RULE_PUBLISH, RULE_OPERATE, RULE_RIGHTS };
extern const char *const rule_right_names[RULE_RIGHTS];

/* A user or a group. */
struct principal {
	bool is_group;
	uint32_t id;
};

struct rule {
	unsigned number; /* of the section */
	char match[RULE_MATCH_BYTES_MAX + 1]; /* "": not set yet */
	struct {
		struct principal list[RULE_NAMES_MAX];
		size_t count; /* 0: the section does not have the key */
	} named[RULE_RIGHTS];
};

/* By number. Zeroed: none. */
struct rules {
	struct rule **list;
	size_t count;
};

void rules_clear(struct rules *rules);
/* The section of this number, made where it is not there. NULL with errno: ENOMEM; ENOSPC: there are
 * MODEL_RULES_MAX. */
struct rule *rules_section(struct rules *rules, unsigned number);
/* Once more is fine. False: the list has RULE_NAMES_MAX. */
bool rule_name(struct rule *rule, enum rule_right right, struct principal principal);

/* The position of the section that counts for the model; RULE_NONE: no section matches. */
#define RULE_NONE (-1)
int rules_match(const struct rules *rules, const char *model);

/* In which sections a peer is named: a bit for each position. */
struct rules_named {
	uint64_t rights[RULE_RIGHTS];
};
/* The call sorts the groups. */
struct rules_named rules_named(const struct rules *rules, uid_t uid, gid_t *groups, size_t count);

/* A position that was looked up under the rules of this generation. */
struct rule_cache {
	uint64_t generation; /* 0: never */
	int position;
};

#endif
