/* What the files of the registry and publish.c share. Each file calls only those that stand before it:
 *   model.c            models, the names in each, owners, and what a reference names
 *   version.c          one version: its state, parts, charges and pins
 *   version_taint.c    damage and losses
 *   revoked_ids.c      leases that were kicked
 *   registry_failed.c  the list of failed versions
 *   registry.c         the table of versions: how they get into it and leave it
 *   alias.c, lease_room.c, lease.c
 *   registry_life.c    a version's moves from state to state, with its aliases */
#ifndef GPUWM_DAEMON_REGISTRY_INTERNAL_H
#define GPUWM_DAEMON_REGISTRY_INTERNAL_H

#include "awake.h"
#include "registry.h"
#include "../base/hash.h"

/* An entry of a model's one name space: a tag or an alias. */
struct named {
	struct version *version; /* one of the two */
	struct alias *alias;
	UT_hash_handle hh;
	char name[NAME_BYTES_MAX + 1];
};

/* Exists while it has versions, or is reserved. */
struct model {
	char name[NAME_BYTES_MAX + 1];
	struct registry *registry;
	struct version *first, *last; /* by age */
	struct alias *aliases; /* by age */
	uint32_t alias_count; /* without `current` and `previous` */
	uint32_t living; /* versions that did not fail */
	struct model_owner owner;
	bool is_reserved; /* see registry_reserve */
	struct rule_cache rule;
	struct named *names;
	UT_hash_handle hh;
};

/* Zeroed where an operator made it. The bytes of its segments are charged with the budget of each part. */
struct version_charges {
	struct quota_charge version, fds, index_bytes;
};

struct version_record {
	struct version version; /* first: a version is its record */
	struct named *named; /* NULL: its tag names something else now */
	/* What leaves the counts with it: its indices, and once it has let go the segments that no other version holds. */
	uint64_t segments, fds, bytes, index_bytes;
	struct version_charges charges; /* of that, what its owner is charged with */
	struct version_record *next_failed;
	UT_hash_handle by_id, by_publish;
};

struct alias_record {
	struct alias alias; /* first */
	struct model *model;
};

struct registry {
	struct model *models; /* by name */
	struct version_record *by_id, *by_publish;
	struct version_record *failed; /* oldest first */
	/* Those without a name are counted, and forgotten, by themselves: they fail by the thousand, and a failed load is to be
	 * seen in the morning. */
	uint32_t failed_count, failed_nameless_count;
	void (*on_forget_failed)(void *data, const struct version *version); /* may be NULL */
	void *on_forget_data;
	struct registry_counts counts;
	uint64_t fds_max;
	uint64_t other_fds; /* registry_take_fds */
	struct lease **lease_buckets; /* a power of two, or none yet */
	uint64_t lease_bucket_count;
	uint64_t lease_last_id;
	struct awake_book awake;
	struct revoked_id *revoked_ids; /* by id */
	bool has_unnamed; /* see registry_note_unnamed */
};

static inline struct version_record *record_of(struct version *version)
{
	return (struct version_record *)version;
}

/* ---- model.c ---- */

/* Sets the error to -ENOMEM, and returns that. */
int out_of_memory(struct error *error);
struct model *model_find(const struct registry *registry, const char *name);
/* NULL: out of memory. */
struct model *model_find_or_add(struct registry *registry, const char *name);
void model_drop_unused(struct model *model);
/* Count a version of the registry and of its model that is building, checking, ready or retiring: from now on, or no longer. */
void version_begin_living(struct version *version);
void version_end_living(struct version *version);
struct named *named_find(const struct model *model, const char *name);
/* An entry that names nothing yet: a new one, or that of a failed version of this tag, which
 * keeps its id only. NULL: out of memory. The name must not be taken otherwise. */
struct named *named_take(struct model *model, const char *name);
void named_drop(struct model *model, struct named *named);

/* ---- version.c ---- */

/* Charges a user with one version that holds nothing yet; on errors nothing is charged. */
int version_charges_begin(struct version_charges *charges, struct quota *quota, uid_t uid, bool nameless,
			  struct error *error);
void version_charges_end(struct version_charges *charges);
/* Every rank has a part and every part is committed. */
bool version_committed(const struct version *version);
/* Returns whether `ranks` has the bit of each rank of the version. */
bool version_has_all(const struct version *version, uint64_t ranks);
/* Counts that one more part holds the segment, which it does by now. */
void segment_count_hold(struct registry_counts *counts, const struct segment *segment);
/* Adds a checked replica to the counts. */
void version_count(struct version *version, const struct replica *replica);
/* Lets go of the version's segments, and takes what leaves with it out of the counts. */
void version_uncount(struct version *version);
/* Gives back what the part is charged with, ends its uses of its segments, and frees the array. Closes nothing. */
void replica_clear(struct replica *replica);
/* Charges the owner with a part that is about to be counted: so many descriptors, and an index. -EDQUOT. */
int version_charge_part(struct version *version, uint64_t fds, uint64_t index_bytes, struct error *error);

/* ---- version_taint.c ---- */

/* Frees what version->tainted points to, and leaves the pointer as it is. */
void version_free_taint(struct version *version);

/* ---- revoked_ids.c ---- */

/* Frees version->revoked_users, before the version itself is freed. */
void version_forget_revoked(struct version *version);

/* ---- registry_failed.c ---- */

/* Moves a version from the counts to the end of the list of failed ones. Returns the oldest one that the caller has to forget
 * for it: there are more than FAILED_KEPT_MAX with a name, or without one. NULL: none. */
struct version *version_list_failed(struct version *version);
/* Takes a version out of that list before the version is freed, and calls the function that registry_on_forget_failed set. */
void version_unlist_failed(struct version *version);

/* ---- registry.c ---- */

/* Takes a version out of every table and frees it. Frees its model too if that has no other version. */
void version_forget(struct version *version);
/* Lists a version as failed, and forgets the one that version_list_failed returns. */
void version_keep_failed(struct version *version);

/* ---- alias.c ---- */

struct alias *alias_find(const struct model *model, const char *name);
/* Names nothing yet: alias_point must follow. NULL: out of memory. */
struct alias *alias_make(struct model *model, const char *name);
void alias_point(struct alias *alias, struct version *version);
void alias_remove(struct model *model, struct alias *alias);

#endif
