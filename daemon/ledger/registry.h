/* The registry: models, their versions with parts, aliases and pins, leases.
 * Knows no sockets and no loop: plain functions, called by methods on one thread.
 *
 *                   commit        checked        retire         unused
 *   building ──▶ checking ──▶ ready ──▶ retiring ──▶ freed
 *       └───────────┴──▶ failed
 */
#ifndef GPUWM_DAEMON_REGISTRY_H
#define GPUWM_DAEMON_REGISTRY_H

#include "../../proto/digest.h"
#include "../../proto/names.h"
#include "device.h"
#include "joiners.h"
#include "../base/quota.h"
#include "../config/rules.h"

enum version_state {
	VERSION_BUILDING,
	VERSION_CHECKING,
	VERSION_READY,
	VERSION_RETIRING,
	VERSION_FREED,
	VERSION_FAILED,
	VERSION_STATES,
};
const char *version_state_name(enum version_state state);

/* One descriptor that keeps memory alive. */
struct held_fd {
	int fd; /* -1: none */
	uint64_t bytes;
	uint64_t name; /* in the fd store; 0: it is not there */
};

/* What one device holds of one rank of a version. */
struct replica {
	uint32_t rank;
	struct device *device;
	bool committed; /* the publisher is no longer needed */
	bool checked; /* index and segments are here */
	struct held_fd index;
	struct held_fd *segments;
	uint32_t segment_count;
	uint64_t bytes; /* of the segments */
	uint64_t tensors;
	struct digest layout, content;
	struct digest promised; /* the content that the commit named */
	struct budget_charge charge;
	uint64_t scrubbed; /* the scrub's last pass that read it */
	bool lost; /* its device was lost with it; stays true when the device is back */
};

struct lease;
struct model;
struct revoked;
struct revoked_user;

struct version {
	struct version_id id;
	struct version_id
		publish; /* the id of the publish that made it: a secret of those who may take part in it */
	struct joiners *joiners; /* malloced; NULL: the owner and operators alone take part in the publish */
	struct model *model;
	char tag[NAME_BYTES_MAX + 1];
	enum version_state state;
	uint32_t world;
	uid_t owner;
	bool by_operator; /* an operator had it loaded, or published it on admin.sock: it is free of quotas */
	uint64_t created_ms, ready_ms; /* since 1970 */
	struct replica *replicas; /* ranks times devices, at most PARTS_PER_VERSION_MAX */
	uint32_t replica_count;
	char (*pins)[NAME_BYTES_MAX + 1];
	uint32_t pin_count;
	struct lease *leases; /* a list */
	uint64_t lease_count;
	uint32_t alias_count; /* aliases other than `previous` that name it */
	bool storing; /* complete, but its descriptors are not in the fd store yet */
	bool freeing; /* its end has begun: it is in no snapshot any more */
	struct error error; /* why it failed; of a ready one: why its alias was not moved */
	uint64_t failed_ms; /* steady: when it failed, or when a restart found that it was lost */
	uint32_t readers; /* jobs that have its memory: it is not freed under them */
	/* Of a ready or retiring version: which of its memory differs from what was checked, or how the device of a
	 * replica was lost (-ENODEV). NULL: nothing is known. */
	const struct error *tainted;
	uint64_t force_at_ms; /* since 1970: when leases that are left are revoked; 0: never */
	uint64_t force_due_ms; /* the same by the steady clock; 0: nothing is due */
	bool forced; /* that time is over: nobody gets a lease again */
	struct revoked_user *revoked_users; /* a list: whose leases were kicked, which nobody gets again */
	struct revoked *revoked; /* a list: leases whose holders may still map it (revoked.h) */
	struct version *next_in_model, *previous_in_model;
	void *told; /* malloced; snapshot.h: what never changes once it is ready, as bytes */
	size_t told_bytes;
};

/* Whose a model is: who made the version that was its first to become ready. It ends when the model has no version that
 * is building, checking, ready or retiring. */
struct model_owner {
	bool known; /* false: no version has become ready yet */
	bool by_operator; /* uid is an operator's */
	uid_t uid;
};

struct alias {
	char name[NAME_BYTES_MAX + 1];
	struct version *version;
	uint64_t generation; /* how often it has moved, 1 when made */
	struct alias *next;
};

/* A session's hold on a replica of a version. */
struct lease {
	uint64_t id; /* never used again */
	struct version *version;
	uint32_t replica; /* position in version->replicas */
	void *holder; /* the session */
	uint64_t since_ms;
	struct quota_charge charge;
	struct lease *next_of_version, **link_of_version;
	struct lease *next_of_holder, **link_of_holder;
	struct lease *next_of_bucket; /* the registry's table */
};

struct registry; /* opaque: hash tables */

/* Kept, not counted when asked. versions: without failed ones; aliases: with
 * `previous`; segments, fds (segments and indices), bytes: what checked replicas of
 * versions hold that did not fail. */
struct registry_counts {
	uint64_t versions, aliases, pins, leases, segments, fds, bytes, index_bytes;
};

struct registry *registry_new(void);
/* Closes nothing: the caller has taken every descriptor. Leases and charges
 * that are left give themselves back, so quota and devices must still be there. */
struct registry *registry_free(struct registry *registry);
struct registry_counts registry_counts(const struct registry *registry);
/* How many descriptors it may hold; STORE_FDS_MAX at first, and at most. */
void registry_set_fds_max(struct registry *registry, uint64_t most);
uint64_t registry_fds_max(const struct registry *registry);

/* ---- finding ---- */

/* The version that a reference names, in whatever state, with *ret_generation
 * of the alias (0 where none). -ENOENT naming what is missing (model, tag or
 * version). A failed version is found by its id and, until it is published anew, by its tag. */
int registry_find(const struct registry *registry, const struct ref *ref, struct version **ret_version,
		  uint64_t *ret_generation, struct error *error);
/* The same for somebody to whom some models do not exist: neither as results nor in the names that errors list. */
struct model_view {
	bool (*sees)(void *data, struct model *model);
	void *data;
};
int registry_find_in(const struct registry *registry, const struct model_view *view, const struct ref *ref,
		     struct version **ret_version, uint64_t *ret_generation, struct error *error);
/* The model of this name, or -ENOENT. */
int registry_model_in(const struct registry *registry, const struct model_view *view, const char *name,
		      struct model **ret_model, struct error *error);
/* NULL: there is none of this name. */
struct model *registry_model(const struct registry *registry, const char *name);
/* The name of a model; lives as long as one of its versions or aliases. */
const char *model_name(const struct model *model);
struct model_owner model_owner(const struct model *model);
/* Which section of the rules counts for it, for whoever knows the rules. */
struct rule_cache *model_rule(struct model *model);
/* The version whose publish had this id, in whatever state; NULL. */
struct version *registry_by_publish(const struct registry *registry, const struct version_id *publish);
/* All versions / aliases in the order of model and age; NULL: the first; NULL at the end. model NULL: all. */
struct version *registry_next_version(const struct registry *registry, const char *model,
				      struct version *after);
const struct alias *registry_next_alias(const struct registry *registry, const char *model,
					const struct alias *after, const char **ret_model);

/* ---- a version comes to be ---- */

/* Copies who may take part in the version's publish. -ENOMEM. */
int version_set_joiners(struct version *version, const struct joiners *joiners);
/* A new version in building, with fresh ids of its own and of its publish. -EEXIST: the tag
 * names a version that did not fail, or is an alias; -EINVAL: a wrong name, the tag is `current` or
 * `previous`, world is 0 or above PARTS_PER_VERSION_MAX; -EDQUOT: VERSIONS_MAX; -ENOMEM.
 * A failed version of the same tag is forgotten (its pointer is dead). */
int registry_add(struct registry *registry, const char *model, const char *tag, uint32_t world, uid_t owner,
		 struct version **ret_version, struct error *error);
/* Whether registry_add would take the name now: -EINVAL and -EEXIST as there. */
int registry_tag_allowed(const struct registry *registry, const struct ref *name, struct error *error);
/* Another part. -EEXIST: this rank is on this device already; -EINVAL: rank not
 * below world; -EDQUOT: PARTS_PER_VERSION_MAX; -EBUSY: the version is no longer building. charge moves in. */
int version_add_replica(struct version *version, uint32_t rank, struct device *device,
			struct budget_charge *charge, uint32_t *ret_position, struct error *error);
/* Moves the state; only moves of the table above (assert). */
void version_move(struct version *version, enum version_state state);
/* True when every replica is committed and checked and every rank has one. */
bool version_complete(const struct version *version);
/* complete -> ready. Takes the alias `current` where the model has neither that alias nor
 * another ready version; *ret_current tells. -EINVAL: not complete; -ENOMEM. */
int registry_ready(struct registry *registry, struct version *version, bool *ret_current, struct error *error);
/* building, checking -> failed; the reason is kept. The oldest failed one above
 * FAILED_KEPT_MAX is forgotten. Descriptors and charges stay for the caller to take, before
 * the next call that may forget (a charge moves out by copy and zeroing, `segments` by setting it to NULL). */
void registry_fail(struct registry *registry, struct version *version, const struct error *reason);
/* Returns the version that failed first; NULL: the registry keeps no failed version. */
struct version *registry_oldest_failed(const struct registry *registry);
/* Forgets a failed version, and its model if that has no other version. Their pointers are dead then. */
void registry_forget_failed(struct registry *registry, struct version *version);
/* Has the registry call `told` with each failed version before it forgets the version, for whatever reason, but not in
 * registry_free. `told` must not change the registry. */
void registry_on_forget_failed(struct registry *registry,
			       void (*told)(void *data, const struct version *version), void *data);

/* ---- a version comes back ---- */

/* A version as a snapshot tells it: ready, retiring or failed. id, publish, joiners, tag, world, owner,
 * by_operator, state, times and error are copied; parts, pins and a taint follow. A failed one may make the oldest failed one
 * forgotten. -EINVAL: names, world; -EEXIST: its id, publish or tag is there; -EDQUOT; -ENOMEM. */
int registry_adopt(struct registry *registry, const char *model, const struct version *like,
		   struct version **ret_version, struct error *error);
/* A part with its descriptors, counted, and charged to its device; `bytes` is the sum of its
 * segments. like->segments is malloced and moves in. -EINVAL, -EEXIST, -EDQUOT, -ENOMEM. */
int version_adopt_replica(struct version *version, struct replica *like, struct error *error);
/* A pin of a ready or retiring version. -EINVAL, -EEXIST, -EDQUOT, -ENOMEM. */
int version_adopt_pin(struct version *version, const char *pin, struct error *error);
/* The owner of a model is known, or is who made its oldest ready version where that is not known. */
void model_adopt_owner(struct model *model, const struct model_owner *owner);
void registry_find_owners(struct registry *registry);
/* Who the owner would be if that were not known: who made the oldest version that is ready or retiring. */
struct model_owner model_oldest(const struct model *model);
/* Charges the owner with all that the version holds, above the limits too, unless an operator made it. -ENOMEM. */
int version_adopt_charges(struct version *version, struct quota *quota, struct error *error);
/* An alias as it was. -EINVAL: a wrong name, the version is not ready; -EEXIST: a tag or an
 * alias; -EDQUOT, -ENOMEM. */
int registry_adopt_alias(struct registry *registry, struct version *version, const char *alias,
			 uint64_t generation, struct error *error);

/* ---- leases ---- */

/* Grants a lease on the replica, and puts it into the holder's list, which begins at *holder_leases. Sets *ret_lease, which
 * belongs to the registry. -EINVAL: the version is not ready; -EBADMSG, -ENODEV: as version_check_replica; -EDQUOT; -ENOMEM. */
int lease_grant(struct registry *registry, struct version *version, uint32_t replica, void *holder,
		struct lease **holder_leases, struct quota *quota, uid_t uid, struct lease **ret_lease,
		struct error *error);
/* The same for a lease that was there before a restart: also on a retiring version. */
int lease_resume(struct registry *registry, struct version *version, uint32_t replica, void *holder,
		 struct lease **holder_leases, struct quota *quota, uid_t uid, struct lease **ret_lease,
		 struct error *error);
/* The lease `id` of the holder's list, or NULL. O(1) by a table; the holder must match. */
struct lease *lease_find(const struct registry *registry, uint64_t id, const void *holder);
/* The lease `id`, whoever holds it, or NULL. */
struct lease *lease_by_id(const struct registry *registry, uint64_t id);
/* Gives it back; the version that it was of (which may be unused now). */
struct version *lease_release(struct registry *registry, struct lease *lease);
/* Before the first lease: ids go on after `last`, so that none is used again after a restart. */
void lease_begin(struct registry *registry, uint64_t last);
/* The id that was given last; 0: none was. */
uint64_t lease_last(const struct registry *registry);

/* ---- revoked leases: revoked_ids.c ---- */

/* From now on the user does not get the lease with this id again, for as long as the version is there. -EEXIST: it was
 * revoked before; -ENOMEM. The caller bounds the ids of a user (REVOKED_IDS_PER_UID_MAX). */
int version_revoke_id(struct version *version, uid_t uid, uint64_t id, struct error *error);
/* The same of all leases of the user whose ids are at most `all_to`: one entry, in place of their ids. -ENOMEM. */
int version_revoke_user(struct version *version, uid_t uid, uint64_t all_to, struct error *error);
bool version_lease_revoked(const struct version *version, uid_t uid, uint64_t id);
/* How many ids of leases of this user are remembered, of all versions. */
uint64_t registry_revoked_ids(const struct registry *registry, uid_t uid);
/* Writes what version_take_revoked reads, under a key. */
void version_put_revoked(struct message_writer *w, const char *key, const struct version *version);
/* Into a version that has none; without the key there are none. Errors: -EINVAL, -EEXIST, -ENOMEM. */
int version_take_revoked(struct version *version, struct fields *f, const char *key, struct error *error);

/* ---- operators ---- */

struct swap_result {
	struct version *now, *old; /* NULL: none */
	uint64_t generation;
	bool changed;
};
/* to NULL: removes the alias (generation 0 then). expect NULL: whatever it names; a zero id: nothing. Where
 * nothing changed, old is now. Rules: hot_swap in docs/protocol.md. -EINVAL, -ENOENT, -EBUSY,
 * -EEXIST (the name is a tag), -EBADMSG, -ENODEV (`to` is tainted), -EDQUOT, -ENOMEM. */
int registry_swap(struct registry *registry, const char *model, const char *alias, struct version *to,
		  const struct version_id *expect, struct swap_result *ret, struct error *error);
/* Whether registry_swap of a ready version would find what it expects: its errors that do not concern the version. */
int registry_swap_allowed(const struct registry *registry, const char *model, const char *alias,
			  const struct version_id *expect, struct error *error);
/* Whether the alias could be made or moved by hand: -EINVAL (a wrong name, `previous`),
 * -EEXIST (a tag), -EDQUOT. For whoever wants to know before a load, not after. */
int registry_alias_allowed(const struct registry *registry, const char *model, const char *alias,
			   struct error *error);
/* Removes every alias `previous` that names the version. */
void registry_forget_previous(struct registry *registry, struct version *version);
/* Removes all aliases: drain. */
void registry_remove_aliases(struct registry *registry);
int version_pin(struct version *version, const char *pin,
		struct error *error); /* -EEXIST, -EDQUOT, -ENOMEM, -EINVAL: not ready, a wrong name */
int version_unpin(struct version *version, const char *pin, struct error *error); /* -ENOENT */
/* Taints a ready or retiring version, whose memory is not what was checked: it gives no new leases, and no alias moves to
 * it. Its leases stay. A second taint does not replace the first, unless the first is a loss and the second is damage. If
 * there is no memory for a copy of `found`, the version is tainted without it. */
void version_taint(struct version *version, const struct error *found);
/* Marks the version's replicas on the device as lost. Returns true if any of them was not marked before: the caller then
 * taints the version. */
bool version_lose(struct version *version, const struct device *device);
/* Returns whether the version is tainted by losses only, and each of its ranks has a replica that was not lost. Those
 * replicas give leases as before. */
bool version_is_left(const struct version *version);
/* Checks that the version is not tainted. -EBADMSG: its memory differs; -ENODEV: a part was lost with its GPU. The error says
 * what, and the remedy. */
int version_check_sound(const struct version *version, struct error *error);
/* The same for a lease on one replica: returns 0 also if only other replicas were lost. */
int version_check_replica(const struct version *version, uint32_t replica, struct error *error);
/* ready -> retiring (retiring: nothing). -EBUSY while an alias other than
 * `previous` names it (lists them); clears `previous`. -EINVAL: building, failed. */
int registry_retire(struct registry *registry, struct version *version, struct error *error);

/* -EBUSY: the version has pins (lists them): it is not retired by force. */
int version_check_unpinned(const struct version *version, struct error *error);

/* True when a retiring version has neither leases nor pins: nobody needs it. */
bool version_unwanted(const struct version *version);
/* The same, and nobody reads it any more: free it. */
bool version_unused(const struct version *version);
/* After the caller took descriptors and charges: retiring -> freed, forgotten. */
void registry_remove(struct registry *registry, struct version *version);

#endif
