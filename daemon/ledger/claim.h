/* Claims: which session is the one who builds a version that is not there. One a name. Knows no
 * sockets and no loop.
 *
 * A claim begins when nobody else builds model@tag, and ends when its holder gives it up or leaves, or when
 * the publish that the holder began ends: the version is ready, or has failed. */
#ifndef GPUWM_DAEMON_CLAIM_H
#define GPUWM_DAEMON_CLAIM_H

#include "../../proto/names.h"
#include "../base/quota.h"
#include "../config/rules.h"

struct claim {
	struct ref name; /* a model and a tag */
	void *holder; /* the session; NULL: after a restart the name is reserved for the user */
	uid_t uid;
	uint64_t since_ms; /* since 1970 */
	struct version_id publish; /* that the holder began; zero: none yet */
	struct rule_cache rule; /* for whoever knows the rules */
	struct quota_charge charge;
	struct claim *next_of_holder, **link_of_holder;
};

struct claim_table; /* opaque: by name */

/* NULL: out of memory. */
struct claim_table *claim_table_new(void);
/* Ends those that are left, so their holders' lists and the quota must still be there. NULL is fine. */
struct claim_table *claim_table_free(struct claim_table *table);
uint64_t claim_count(const struct claim_table *table);
/* By age; after NULL: the first. NULL at the end. */
struct claim *claim_next(const struct claim_table *table, const struct claim *after);
/* NULL: nobody claims it. */
struct claim *claim_find(const struct claim_table *table, const struct ref *name);

/* The name, which nobody claims yet, is the holder's to build. The list of the holder's claims begins at
 * *holder_claims. -EDQUOT, -ENOMEM. */
int claim_take(struct claim_table *table, const struct ref *name, void *holder, struct claim **holder_claims,
	       struct quota *quota, uid_t uid, struct claim **ret_claim, struct error *error);
void claim_end(struct claim_table *table, struct claim *claim);

/* The name, which nobody claims yet, is reserved for the user, who is charged with it above the limit too. -EEXIST: it is
 * claimed; -ENOMEM. */
int claim_reserve(struct claim_table *table, const struct ref *name, struct quota *quota, uid_t uid,
		  struct error *error);
/* What was reserved is the holder's. */
void claim_give(struct claim_table *table, struct claim *claim, void *holder, struct claim **holder_claims);
/* The holder leaves, and the name is reserved for its user. */
void claim_leave(struct claim_table *table, struct claim *claim);
/* Whether a restart would find it: nothing was begun for it, which would end with gpuwmd. */
bool claim_is_kept(const struct claim *claim);
/* Counts changes of what a restart would find. */
uint64_t claim_changes(const struct claim_table *table);

/* The holder began this publish. */
void claim_begin(struct claim_table *table, struct claim *claim, const struct version_id *publish);
bool claim_has_begun(const struct claim *claim);

#endif
