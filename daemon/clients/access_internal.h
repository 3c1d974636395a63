/* What access.c and access_region.c share. No other file includes it. */
#ifndef GPUWM_DAEMON_ACCESS_INTERNAL_H
#define GPUWM_DAEMON_ACCESS_INTERNAL_H

#include "access.h"
#include "clients.h"
#include "../config/config.h"

/* What a right is to. */
struct subject {
	const char *name;
	int position; /* of the section that counts */
	struct model_owner owner;
};

bool access_is_operator(struct session *session);
/* Returns whether this section gives the peer the right, or one that includes it. */
bool access_has_right(struct session *session, int position, enum rule_right right);
const struct rule *access_rule_at(const struct clients *clients, int position);
/* Returns whether the section names who has this right, so that nobody else has it. */
bool access_restricts(const struct clients *clients, int position, enum rule_right right);
/* Returns which section counts for this name; the cache is of whatever carries the name. */
int access_position(const struct clients *clients, struct rule_cache *cache, const char *name);
/* Returns whether a region that is so called and owned exists for the session. */
bool access_sees_as_region(struct session *session, const struct subject *subject);

#endif
