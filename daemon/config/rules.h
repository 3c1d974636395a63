/* Rules for models: the sections [model.N] of the configuration. Knows no sockets, no users' names and no loop.
 *
 * The section with the lowest number whose pattern matches a model's name counts for the model; later ones do not. */
#ifndef GPUWM_DAEMON_RULES_H
#define GPUWM_DAEMON_RULES_H

#include "../../base/limits.h"
#include "../../proto/tier_kind.h"

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

/* When versions of a section's models have host copies. */
enum host_copy {
	HOST_COPY_ON_DEMOTE, /* a version that comes from host memory keeps its copy there */
	HOST_COPY_YES, /* the same, and gpuwmd makes a copy of each version in the background */
	HOST_COPY_NO, /* a version that comes onto its devices leaves nothing in host memory */
};

/* What a section says about the memory of its models' versions. Zeroed: they stay where they are. */
struct rule_tiers {
	uint64_t idle_s[TIERS]; /* 0: the section does not have this tier in `idle` */
	uint64_t max_resident; /* versions of one model that may be resident at a time; 0: any number */
	enum tier evict; /* where a version may go to make room; ON_DEVICE: it may not go */
	bool evict_said; /* the section has the key `evict` */
	enum host_copy host_copy;
	bool host_copy_said; /* the section has the key `host_copy` */
	bool evict_own; /* only to make room for its own owner */
};

struct rule {
	unsigned number; /* of the section */
	char match[RULE_MATCH_BYTES_MAX + 1]; /* "": not set yet */
	struct {
		struct principal list[RULE_NAMES_MAX];
		size_t count; /* 0: the section does not have the key */
	} named[RULE_RIGHTS];
	struct rule_tiers tiers;
	unsigned
		share; /* percent of what base/share.h leaves to a user's regions on a device; 0: the section does not have the key */
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

/* Returns the shortest time of all sections' `idle`, in seconds; 0: none has the key. */
uint64_t rules_shortest_idle_s(const struct rules *rules);
/* Returns whether a section has `max_resident`. */
bool rules_limit_residents(const struct rules *rules);
/* Returns whether a section has `host_copy = yes`. */
bool rules_make_host_copies(const struct rules *rules);

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
