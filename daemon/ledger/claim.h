/* Claims: which session is to build a version that is not there. A name has at most one claim. This file knows no socket and
 * no loop.
 *
 * A session gets a claim if no other session builds model@tag. The claim ends when its holder gives it up or leaves, or when
 * the publish that the holder began ends, because the version is ready or has failed. */
#ifndef GPUWM_DAEMON_CLAIM_H
#define GPUWM_DAEMON_CLAIM_H

#include "../../proto/names.h"
#include "../base/quota.h"
#include "../config/rules.h"

struct claim {
	struct ref name; /* a model and a tag */
	void *holder; /* the session; NULL: the name is reserved for the user after a restart */
	uid_t uid;
	uint64_t since_ms; /* since 1970 */
	struct version_id publish; /* the publish that the holder began; zero: none yet */
	struct rule_cache rule; /* which section of the rules applies (config/rules.h) */
	struct quota_charge charge;
	struct claim *next_of_holder, **link_of_holder;
};

struct claim_table; /* opaque: by name */

/* NULL: out of memory. */
struct claim_table *claim_table_new(void);
/* Ends the claims that are left and frees the table. Returns NULL; NULL is fine. The holders' lists and the quota must still be
 * there. */
struct claim_table *claim_table_free(struct claim_table *table);
uint64_t claim_count(const struct claim_table *table);
/* Returns the next younger claim after `after` (NULL: the oldest), or NULL at the end. */
struct claim *claim_next(const struct claim_table *table, const struct claim *after);
/* Returns the claim of this name, or NULL. */
struct claim *claim_find(const struct claim_table *table, const struct ref *name);

/* Who gets a claim. */
struct claim_holder {
	void *holder;
	struct claim **claims; /* the beginning of the holder's list */
	struct quota *quota;
	uid_t uid; /* who is charged */
};

/* Gives the holder the claim of a name that has none, and puts it into the holder's list. Sets *ret_claim, which belongs to the
 * table. Fails with -EDQUOT and -ENOMEM. */
int claim_take(struct claim_table *table, const struct ref *name, const struct claim_holder *holder,
	       struct claim **ret_claim, struct error *error);
void claim_end(struct claim_table *table, struct claim *claim);

/* Reserves a name for a user, and charges the user even beyond the limit. Fails with -EEXIST (the name has a claim) and
 * -ENOMEM. */
int claim_reserve(struct claim_table *table, const struct ref *name, struct quota *quota, uid_t uid,
		  struct error *error);
/* Gives a reserved claim to a holder. */
void claim_give(struct claim_table *table, struct claim *claim, void *holder, struct claim **holder_claims);
/* The holder leaves, and the name is reserved for its user. */
void claim_leave(struct claim_table *table, struct claim *claim);
/* Returns whether the claim outlives gpuwmd: it does unless its holder has begun a publish, which ends with gpuwmd. */
bool claim_is_kept(const struct claim *claim);
/* Returns a number that grows with each change of the claims that outlive gpuwmd. */
uint64_t claim_changes(const struct claim_table *table);

/* The holder began this publish. */
void claim_begin(struct claim_table *table, struct claim *claim, const struct version_id *publish);
bool claim_has_begun(const struct claim *claim);

#endif
