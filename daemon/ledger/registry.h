/* The registry: models, and the versions, parts, aliases, pins and leases of each. It knows no socket and no loop. All
 * functions run on the loop's thread.
 *
 *                   commit        checked        retire         unused
 *   building ──▶ checking ──▶ ready ──▶ retiring ──▶ freed
 *       └───────────┴──▶ failed
 */
#ifndef GPUWM_DAEMON_REGISTRY_H
#define GPUWM_DAEMON_REGISTRY_H

#include "../../proto/index/digest.h"
#include "../../proto/names.h"
#include "../../proto/tier_kind.h"
#include "segment.h"
#include "../../proto/wire/part.h"
#include "../../proto/wire/messages_publish.h"
#include "description.h"
#include "../base/quota.h"
#include "../config/rules.h"

/* Users and groups who may take part in a publish besides the user who began it. */
struct joiners {
	uint32_t uid_count, gid_count; /* both 0: nobody */
	uid_t uids[JOIN_UIDS_MAX];
	gid_t gids[JOIN_GIDS_MAX];
};

/* Copies the ids of a message, which are at most as many as there is room for. */
void joiners_set(struct joiners *joiners, const struct join_params *params);
/* Returns them for a message. The arrays stay those of `joiners`. */
struct join_params joiners_tell(const struct joiners *joiners);
bool joiners_have_uid(const struct joiners *joiners, uid_t uid);

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

/* The descriptor of an index. */
struct held_fd {
	int fd; /* -1: none */
	uint64_t bytes;
	uint64_t name; /* in the fd store; 0: it is not there */
};

/* Which segment a load found this one to be equal to, byte by byte, when it shared that one. Versions never change, so segments of
 * one rank with one origin have the same bytes, wherever they lie now. A segment that no load shared is its own origin. */
struct origin {
	struct version_id version; /* of the first version that had the bytes; it may be gone by now */
	uint64_t segment; /* its position there */
};

/* A part: what one device holds of one rank of a version. */
struct replica {
	uint32_t rank;
	struct device *device; /* the one that the part belongs to */
	struct device *
		lies_on; /* the one whose memory its segments are: `device`, or host; NULL: its version lies on files */
	bool committed; /* the publisher is no longer needed */
	bool checked; /* gpuwmd has its index and segments */
	struct held_fd index;
	struct segment_hold *segments; /* malloced */
	uint32_t segment_count;
	/* Malloced: the same segments in host memory, while the version lies on its devices; NULL: the part has no host copy. Nobody is
	 * charged with them but the budget of host. */
	struct segment_hold *spares;
	uint32_t spare_count;
	struct device *spares_on; /* the device `host`, if there are spares */
	uint64_t bytes; /* of the segments, also while the version lies on files */
	uint64_t *sizes; /* malloced: of each segment, while the version lies on files; else NULL */
	uint32_t size_count;
	struct origin *origins; /* malloced: of each segment, on every tier; NULL: each is its own */
	uint64_t tensors;
	struct digest layout, content;
	struct digest promised; /* the content that the commit named */
	struct budget_charge
		charge; /* what it was granted, until it is checked: then each segment has its own */
	uint64_t scrubbed; /* the scrub's last pass that read it */
	uint64_t copy_scrubbed; /* the same of its host copy */
	bool lost; /* its device was lost with it; stays true when the device is back */
};

/* Of a version that is cached under its name: the name is a key, and gpuwmd retires the version by itself. It never takes
 * `current`, and another version may have its name as soon as it is retired. */
struct version_cache {
	bool cached;
	uint64_t ttl_ms; /* how long it stays ready; 0: until something else retires it */
	uint32_t keep_last; /* how many cached versions of its user the model keeps once it is ready; 0: all */
	struct version_id companion_of; /* the version with which it ends (companion.h); all zero: none */
};

struct ipc_copy;
struct lease;
struct model;
struct revoked;
struct revoked_user;
struct tier_move;

struct version {
	struct version_id id;
	/* The id of the publish that made the version. Only those who may take part in the publish know it. */
	struct version_id publish;
	struct joiners *joiners; /* malloced; NULL: only the owner and operators may take part in the publish */
	struct model *model;
	char tag[NAME_BYTES_MAX + 1];
	enum version_state state;
	uint32_t world;
	uid_t owner;
	/* An operator loaded it, or published it on admin.sock. It then counts for no quota. */
	bool by_operator;
	uint64_t created_ms, ready_ms; /* since 1970 */
	struct replica *replicas; /* ranks times devices, at most PARTS_PER_VERSION_MAX */
	uint32_t replica_count;
	char (*pins)[NAME_BYTES_MAX + 1];
	uint32_t pin_count;
	struct lease *leases; /* a list */
	uint64_t lease_count;
	uint64_t parked_count; /* of these leases: parked ones, whose holders map nothing */
	uint64_t
		waking; /* leases to which it was granted, and whose holders have not heard of it yet: it stays on its devices */
	uint32_t alias_count; /* aliases other than `previous` that name it */
	bool storing; /* it is complete, but the fd store does not have all of its descriptors yet */
	bool freeing; /* gpuwmd has begun to free it, and leaves it out of snapshots */
	struct error error; /* why it failed; of a ready version: why its alias was not moved */
	uint64_t failed_ms; /* steady: when it failed, or when a restart found that it was lost */
	uint32_t readers; /* jobs that read its memory; it is not freed before they have ended */
	/* Of a ready or retiring version: which memory differs from what was checked, or how the device of a part was lost
	 * (-ENODEV). NULL: neither is known. */
	const struct error *tainted;
	uint64_t force_at_ms; /* since 1970: when gpuwmd revokes the leases that are left; 0: never */
	uint64_t force_due_ms; /* the same by the steady clock; 0: nothing is due */
	bool forced; /* that time has come: no session gets a lease of it any more */
	struct version_cache cache;
	bool gave_name_up; /* it is cached and was retired: only its id names it, and another version may have its tag */
	uint64_t expire_at_ms; /* since 1970: when gpuwmd retires it, which is cached; 0: never */
	uint64_t expire_due_ms; /* the same by the steady clock; 0: nothing is due */
	struct revoked_user *revoked_users; /* a list: users whose leases were kicked, and may not be resumed */
	struct revoked *revoked; /* a list: revoked leases whose holders may still map the memory */
	enum tier tier; /* where all of its parts lie */
	struct tier_move *
		move; /* it is on its way to another tier, or files are compared with it (work/tiers/tiers.h); NULL: neither */
	enum tier moving_to; /* while it is on its way to another tier; else `tier` */
	struct description *description; /* what it can be loaded from again; NULL: nothing is known */
	uint64_t promotion; /* the number of its last promotion in this gpuwmd; 0: none */
	struct error *promotion_error; /* malloced: why that one failed; NULL: it did not */
	uint64_t
		last_used_ms; /* since 1970: when its last awake lease ended or parked; before that, when it became ready */
	uint64_t
		resident_ms; /* since 1970: when it last came onto its devices; 0: not since the start of gpuwmd */
	bool restores; /* it was resident before all memory was lost, and gpuwmd is to promote it */
	bool restore_failed; /* it could not, and does not try again by itself before its next start */
	bool copying; /* of the moves: one makes its host copy, which keeps nobody from moving it */
	uint64_t
		copy_again_ms; /* since 1970: its last host copy could not be made, and gpuwmd makes none before */
	uint64_t
		demote_again_ms; /* since 1970: its last demotion failed, and gpuwmd tries no other one by itself before */
	/* Leases up to this one ended before the version was demoted. They are not resumed: their memory is not the version's any
	 * more. */
	uint64_t stale_leases;
	struct version *next_in_model, *previous_in_model;
	void *told; /* malloced: the part of its snapshot that changes only when it moves to another tier (snapshot.h) */
	size_t told_bytes;
};

/* The owner of a model: the user who made its first ready version. The model has no owner any more when it has no version
 * that is building, checking, ready or retiring. */
struct model_owner {
	bool known; /* false: no version has become ready yet */
	bool by_operator; /* the user is an operator */
	uid_t uid;
};

struct alias {
	char name[NAME_BYTES_MAX + 1];
	struct version *version;
	/* What it named before its last move, while that is ready; NULL: nothing. Always NULL for `current`, where the alias
	 * `previous` tells it: registry_alias_before knows both. */
	struct version *before;
	uint64_t generation; /* counts its moves; 1 when it is made */
	struct alias *next;
};

/* A session's right to use a part of a version. */
struct lease {
	uint64_t id; /* no later lease has it */
	struct version *version;
	uint32_t replica; /* position in version->replicas */
	bool parked; /* its holder maps nothing: the lease keeps the version from being freed, but not from leaving its devices */
	void *holder; /* the session */
	uint64_t since_ms;
	char *address; /* malloced: where the holder serves requests; NULL: it has announced none */
	struct quota_charge charge;
	struct ipc_copy *copy; /* whose handles it hands over; NULL: it hands over the version's descriptors */
	struct lease_room *room; /* what the holder takes on the device besides the version; NULL: nothing */
	uint64_t
		missing; /* bytes that its device lacks since the version left it, while the lease was parked; 0: none */
	uint64_t parked_as; /* the number that it had when it was parked last; 0: it never was */
	const struct peer *peer; /* the holder's process (net/peer.h); NULL: nobody knows */
	struct awake_entry *awake; /* where it is noted that it is awake (awake.h); NULL: nowhere */
	struct lease *next_of_version, **link_of_version;
	struct lease *next_of_holder, **link_of_holder;
	struct lease *next_of_bucket; /* the registry's table */
};

/* What the holder of a lease takes on the lease's device besides the version. */
struct lease_room {
	struct budget_charge charge;
	uint64_t kept; /* as much as the holder kept when it parked */
	uint64_t awake; /* as much as the holder asked for when it was to be awake last */
	uint64_t paid; /* as much as the user's quota once had for this lease */
	struct unpark
		*unpark; /* what it waits for, to be awake (work/versions/unparks.h); NULL: it does not wait */
};

struct registry; /* opaque: hash tables */

/* The registry keeps these figures up to date. `versions` leaves failed ones out, and those without a name, of which
 * `nameless` is the number; `aliases` includes `previous`.
 * `segments`, `fds` (of segments and indices), `bytes` and `index_bytes` are those of checked parts whose version has not
 * failed; a segment that several versions hold counts once. */
struct registry_counts {
	uint64_t versions, nameless, aliases, pins, leases, segments, fds, bytes, index_bytes;
	uint64_t shared_bytes; /* part of `bytes`: of segments that several parts hold */
	uint64_t host_copies; /* parts on their devices that have a host copy, whose segments count too */
	uint64_t demoted; /* part of `versions`: that lie on a lower tier than their devices */
};

struct registry *registry_new(void);
/* Frees the registry. Returns NULL. It closes no descriptor: the caller has taken all of them. It gives back the charges of
 * leases and versions that are left, so quota and devices must still be there. */
struct registry *registry_free(struct registry *registry);
struct registry_counts registry_counts(const struct registry *registry);
/* Sets how many descriptors the registry may hold. At first, and at most, it is STORE_FDS_MAX. */
void registry_set_fds_max(struct registry *registry, uint64_t most);
uint64_t registry_fds_max(const struct registry *registry);
/* Counts descriptors of something else than versions, which lie in the same store. Fails with -EDQUOT if there is no room for them. */
int registry_take_fds(struct registry *registry, uint64_t count, struct error *error);
/* The same for those that are there already, even beyond the limit. */
void registry_adopt_fds(struct registry *registry, uint64_t count);
void registry_give_fds(struct registry *registry, uint64_t count);
/* Returns how many descriptors are counted: of versions, and those. */
uint64_t registry_fds(const struct registry *registry);

/* ---- finding ---- */

/* Finds the version that a reference names, in any state. Sets *ret_version, and *ret_generation to the generation of the
 * alias (0 if the reference names no alias). It finds a failed version by its id and, until a new version takes its tag, by
 * its tag. Fails with -ENOENT; the message says whether the model, the tag or the version is missing. */
int registry_find(const struct registry *registry, const struct ref *ref, struct version **ret_version,
		  uint64_t *ret_generation, struct error *error);
/* The same for a session that may not see some models. Those models are not found, and errors do not list them. */
struct model_view {
	bool (*sees)(void *data, struct model *model);
	void *data;
};
int registry_find_in(const struct registry *registry, const struct model_view *view, const struct ref *ref,
		     struct version **ret_version, uint64_t *ret_generation, struct error *error);
/* Finds the model of this name. Fails with -ENOENT. */
int registry_model_in(const struct registry *registry, const struct model_view *view, const char *name,
		      struct model **ret_model, struct error *error);
/* Returns the model of this name, or NULL. */
struct model *registry_model(const struct registry *registry, const char *name);
/* Returns the model after `after`, by name; after NULL: the first one. Returns NULL at the end. */
struct model *registry_next_model(const struct registry *registry, const struct model *after);
/* Returns the name of a model. The text is valid as long as the model has a version or an alias. */
const char *model_name(const struct model *model);
struct model_owner model_owner(const struct model *model);
/* Returns whether the version has no name: its user's nameless_model and its id stand for it. It is freed when nobody has a
 * lease of it. */
bool version_is_nameless(const struct version *version);
/* Whether it lies where workers lease it. */
static inline bool version_is_resident(const struct version *version)
{
	return tier_is_resident(version->tier);
}
/* Returns the place where config/rules.h keeps which of its sections applies to the model. */
struct rule_cache *model_rule(struct model *model);
/* Returns the version whose publish had this id, in any state, or NULL. */
struct version *registry_by_publish(const struct registry *registry, const struct version_id *publish);
/* Return the version or alias after `after`, by model and age; after NULL: the first one. They return NULL at the end.
 * model: only those of this model; NULL: all. */
struct version *registry_next_version(const struct registry *registry, const char *model,
				      struct version *after);
const struct alias *registry_next_alias(const struct registry *registry, const char *model,
					const struct alias *after, const char **ret_model);

/* ---- a version comes to be ---- */

/* Sets who may take part in the version's publish, as a copy. Fails with -ENOMEM. */
int version_set_joiners(struct version *version, const struct joiners *joiners);
/* What a version is to be: its name, how many ranks it has, whose it is, and whether it is cached. */
struct version_wish {
	const char *model, *tag;
	uint32_t world;
	uid_t owner;
	struct version_cache cache;
};
/* Adds a version in the state `building`, with new ids for itself and for its publish. Sets *ret_version, which belongs to the
 * registry. A failed version with the same tag is forgotten, and its pointer is invalid from then on. Fails with
 *   -EEXIST  The tag names a version that has not failed, or is an alias.
 *   -EINVAL  A name is wrong, the tag is `current` or `previous`, or world is 0 or above PARTS_PER_VERSION_MAX.
 *   -EDQUOT  There are VERSIONS_MAX versions.
 *   -ENOMEM */
int registry_add(struct registry *registry, const struct version_wish *wish, struct version **ret_version,
		 struct error *error);
/* The same for a version without a name, of one rank. Fails with -EDQUOT (there are NAMELESS_MAX of them) and -ENOMEM. */
int registry_add_nameless(struct registry *registry, uid_t owner, struct version **ret_version,
			  struct error *error);
/* Checks whether registry_add would take the name now. Fails with -EINVAL and -EEXIST as registry_add does. */
int registry_tag_allowed(const struct registry *registry, const struct ref *name, struct error *error);
/* Adds a part, and sets *ret_position to its place in version->replicas. The charge moves into the part. Fails with
 *   -EEXIST  The version has this rank on this device already.
 *   -EINVAL  The rank is not below world.
 *   -EDQUOT  The version has PARTS_PER_VERSION_MAX parts.
 *   -EBUSY   The version is no longer building. */
int version_add_replica(struct version *version, uint32_t rank, struct device *device,
			struct budget_charge *charge, uint32_t *ret_position, struct error *error);
/* Returns the bytes of the host copies of the version's parts; 0: it has none. */
uint64_t version_host_copy_bytes(const struct version *version);
/* Returns the origin of the segment at this position of the version's part. */
struct origin replica_origin(const struct version *version, const struct replica *replica, uint32_t segment);
bool origin_equal(const struct origin *a, const struct origin *b);
/* Returns the part that has the hold, which is one of its version's. */
const struct replica *segment_hold_part(const struct segment_hold *hold);
/* Returns the part of this rank on this device, or NULL. */
const struct replica *version_replica(const struct version *version, uint32_t rank,
				      const struct device *device);
/* Returns the first part of this rank. The others are its replicas, with the same content. */
const struct replica *version_rank(const struct version *version, uint32_t rank);
/* Returns whether both versions, which are complete, have the same ranks with the same content: index and bytes. */
bool version_has_content_of(const struct version *version, const struct version *other);
/* Moves the version to another state. It must be a move of the picture above (assert). */
void version_move(struct version *version, enum version_state state);
/* Lists the descriptors of a part that was checked. They stay the part's. */
void replica_list(const struct replica *replica, struct part *ret);
/* The same with the segments of its host copy. */
void replica_list_copy(const struct replica *replica, struct part *ret);
/* The version's parts no longer keep their segments open. Call it before the version's descriptors leave the fd store. What only
 * this version held leaves with it (segment_hold.last). A second call does nothing. */
void version_let_go(struct version *version);
/* Returns whether every rank has a part, and all parts are committed and checked. */
bool version_complete(const struct version *version);
/* Makes a complete version ready. If the model has neither the alias `current` nor another ready version, the version gets
 * that alias, unless the version is cached or has no name; *ret_current says so. Other cached versions don't count here.
 * Fails with -EINVAL if the version is not complete, and -ENOMEM. */
int registry_ready(struct registry *registry, struct version *version, bool *ret_current, struct error *error);
/* Fails a version that is building or checking, and keeps the reason. If there are then more than FAILED_KEPT_MAX failed
 * versions with a name, or without one, the oldest of these is forgotten. The caller takes descriptors and charges before the
 * next call that may forget a version, with shared_charge_of_part and closing_part. */
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

/* Adds a version of a snapshot, which is ready, retiring or failed. From `like` come id, publish, joiners, tag, world, owner,
 * by_operator, state, times, cache, gave_name_up and error. The caller adds parts, pins and a taint. A model whose owner nothing
 * else has said belongs to its oldest version's user from then on. If the version has
 * failed, the oldest failed version may be forgotten. Fails with -EINVAL (a name or world is wrong), -EEXIST (its id, publish
 * or tag is there), -EDQUOT and -ENOMEM. */
int registry_adopt(struct registry *registry, const char *model, const struct version *like,
		   struct version **ret_version, struct error *error);
/* Adds a part with its descriptors, counts it, and charges its device with the segments that no version holds yet. `bytes` is the
 * sum of its segments. like->segments, like->spares, like->sizes and like->origins are malloced and move in; each entry has a segment, and no hold yet. If
 * like->lies_on is NULL and the version does not lie on files, the part lies on its device. Fails with -EINVAL, -EEXIST, -EDQUOT and
 * -ENOMEM. */
int version_adopt_replica(struct version *version, struct replica *like, struct error *error);
/* Adds a pin to a ready or retiring version. Fails with -EINVAL, -EEXIST, -EDQUOT and -ENOMEM. */
int version_adopt_pin(struct version *version, const char *pin, struct error *error);
/* Sets the owner of a model, whatever its versions say. A model without versions becomes a reserved one: it is there, with its
 * owner, although none of its versions came back, so that no other publisher can take its name. It stays until one of its versions
 * becomes ready. Fails with -ENOMEM. */
int registry_adopt_owner(struct registry *registry, const char *model, const struct model_owner *owner,
			 struct error *error);
bool model_is_reserved(const struct model *model);
/* Returns the user who made the model's oldest version that is ready or retiring. */
struct model_owner model_oldest(const struct model *model);
bool model_owner_equal(const struct model_owner *a, const struct model_owner *b);
/* Notes that versions did not come back of which nothing says the model. Until gpuwmd's next start, registry_has_unnamed returns
 * true: any name that is not there may be an operator's. */
void registry_note_unnamed(struct registry *registry);
bool registry_has_unnamed(const struct registry *registry);
/* Charges the owner with all that the version holds, even beyond the owner's limits. Does nothing if an operator made the
 * version. Fails with -ENOMEM. */
int version_adopt_charges(struct version *version, struct quota *quota, struct error *error);
/* Adds an alias with its generation. Fails with -EINVAL (the name is wrong, or the version is not ready), -EEXIST (there is
 * such a tag or alias), -EDQUOT and -ENOMEM. */
int registry_adopt_alias(struct registry *registry, struct version *version, const char *alias,
			 uint64_t generation, struct error *error);
/* Sets the version that an adopted alias of its model named before. Fails with -EINVAL (the version is not ready, or the alias
 * is `current` or `previous`). */
int registry_adopt_before(struct registry *registry, struct version *before, const char *alias,
			  struct error *error);

/* ---- leases ---- */

/* Who gets a lease. */
struct lease_holder {
	void *holder;
	struct lease **leases; /* the beginning of the holder's list */
	struct quota *quota;
	uid_t uid; /* who is charged */
	const struct peer
		*peer; /* its process, which the holder has as long as the lease; NULL: nobody knows */
};

/* Returns where it is noted which leases are awake. */
struct awake_book *registry_awake(struct registry *registry);
/* Leases that end from now on stay noted: gpuwmd stops, and their holders go on with the next one. */
void registry_keep_awake(struct registry *registry);
/* Grants a lease on the replica, and puts it into the holder's list. Sets *ret_lease, which belongs to the registry.
 * -EINVAL: the version is not ready, or does not lie on its devices; -EBADMSG, -ENODEV: as version_check_replica; -EDQUOT;
 * -ENOMEM. */
int lease_grant(struct registry *registry, struct version *version, uint32_t replica,
		const struct lease_holder *holder, struct lease **ret_lease, struct error *error);
/* The same for a lease that an earlier gpuwmd granted. The version may be retiring. parked: its holder maps nothing, and the version
 * may lie on any tier. */
int lease_resume(struct registry *registry, struct version *version, uint32_t replica, bool parked,
		 const struct lease_holder *holder, struct lease **ret_lease, struct error *error);
/* Returns the lease with this id if this holder has it, else NULL. Takes constant time. */
struct lease *lease_find(const struct registry *registry, uint64_t id, const void *holder);
/* Returns the lease with this id, or NULL. */
struct lease *lease_by_id(const struct registry *registry, uint64_t id);
/* Sets where the holder serves requests; NULL: nowhere. Returns 1 if that is another address than before, else 0. Fails with
 * -ENOMEM. */
int lease_set_address(struct lease *lease, const char *address);
/* The holder of the lease maps nothing from now on. */
void lease_park(struct lease *lease);
/* The holder of a parked lease gets the memory as it is now. The lease has another number from then on: leases up to
 * version->stale_leases are of earlier memory. */
void lease_unpark(struct registry *registry, struct lease *lease);
/* The holder did not get it: the lease is parked, under the number that the holder knows. */
void lease_unpark_undo(struct registry *registry, struct lease *lease);
/* Returns the device that the lease's part belongs to, where its room is charged. */
struct device *lease_device(const struct lease *lease);
uint64_t lease_room_bytes(const struct lease *lease);
/* Makes lease->room, unless it is there. Fails with -ENOMEM. */
int lease_room_make(struct lease *lease, struct error *error);
/* Sets how many bytes the holder takes on the lease's device besides the version, and charges them to the device and to the user (uid NULL:
 * to no user). Less than there is always succeeds, if there is room at all. More fails with -ENOSPC, with -EDQUOT unless the user had paid
 * for as much before, and with -ENOMEM; the room stays as it was then. */
int lease_room_set(struct lease *lease, uint64_t bytes, struct quota *quota, const uid_t *uid,
		   struct error *error);
/* The same for what the holder takes already, whatever the limits. Fails with -ENOMEM. */
int lease_room_adopt(struct lease *lease, uint64_t bytes, struct quota *quota, const uid_t *uid,
		     struct error *error);
/* Moves the room of a lease to another one of the same device and the same user, which has none. Fails with -EINVAL. */
int lease_room_move(struct lease *from, struct lease *to, struct error *error);
/* Gives the room back. Returns NULL; NULL is fine. */
struct lease_room *room_free(struct lease_room *room);
/* Returns how many leases of the version are not parked: if there are any, it stays on its devices. */
uint64_t version_awake_leases(const struct version *version);
/* Ends a lease. Returns its version, which may be unused now. */
struct version *lease_release(struct registry *registry, struct lease *lease);
/* Sets the id after which ids go on, so that no id is used again after a restart. Call it before the first lease. */
void lease_begin(struct registry *registry, uint64_t last);
/* Returns the id of the newest lease, or 0 if there was none. */
uint64_t lease_last(const struct registry *registry);

/* ---- revoked leases: revoked_ids.c ---- */

/* Remembers, for as long as the version is there, that this user may not resume the lease with this id. Fails with -EEXIST if
 * it was revoked before, and -ENOMEM. The caller limits the ids of a user (REVOKED_IDS_PER_UID_MAX). */
int version_revoke_id(struct version *version, uid_t uid, uint64_t id, struct error *error);
/* The same for all leases of the user whose ids are at most `all_to`. One entry takes the place of their ids. Fails with
 * -ENOMEM. */
int version_revoke_user(struct version *version, uid_t uid, uint64_t all_to, struct error *error);
bool version_lease_revoked(const struct version *version, uid_t uid, uint64_t id);
/* Returns how many ids of this user's leases the registry remembers, for all versions together. */
uint64_t registry_revoked_ids(const struct registry *registry, uid_t uid);
/* Writes, under this key, what version_take_revoked reads. */
void version_put_revoked(struct message_writer *w, const char *key, const struct version *version);
/* Reads revoked leases into a version that has none. If the key is missing, there are none. Fails with -EINVAL, -EEXIST and
 * -ENOMEM. */
int version_take_revoked(struct version *version, struct fields *f, const char *key, struct error *error);

/* ---- operators ---- */

struct swap_result {
	struct version *now, *old; /* NULL: none */
	uint64_t generation;
	bool changed;
};
struct alias_move {
	const char *model, *alias;
	struct version *to; /* NULL: the alias is removed, and the generation is 0 then */
	/* The version that the alias must name now. A zero id: the alias must not be there. NULL: it may name any version. */
	const struct version_id *expect;
};
/* Moves or removes an alias. If nothing changes, ret->old is ret->now. The rules are hot_swap's in docs/protocol.md. Fails with -EINVAL, -ENOENT, -EBUSY (the alias does not name what is
 * expected), -EEXIST (the name is a tag), -EAGAIN (moved->to does not lie on its devices), -EBADMSG or -ENODEV (moved->to is tainted), -EDQUOT and -ENOMEM. */
int registry_swap(struct registry *registry, const struct alias_move *moved, struct swap_result *ret,
		  struct error *error);
/* Checks whether registry_swap could move the alias to a version that is ready. Fails with those of its errors that do not
 * depend on the version. */
int registry_swap_allowed(const struct registry *registry, const char *model, const char *alias,
			  const struct version_id *expect, struct error *error);
/* Checks whether an alias could be made or moved by hand, before a load that would take minutes. Fails with -EINVAL (the name
 * is wrong, or is `previous`, or the model's versions have no names), -EEXIST (it is a tag) and -EDQUOT. */
int registry_alias_allowed(const struct registry *registry, const char *model, const char *alias,
			   struct error *error);
/* Returns the version that the alias named before its last move; NULL: none, or that version is not ready any more. */
const struct version *registry_alias_before(const struct alias *alias);
/* Makes all aliases of the version's model forget that they named the version before: removes `previous` if it names the
 * version. */
void registry_forget_before(struct version *version);
/* Removes all aliases, for a drain. */
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
/* Makes a ready version retiring, and makes aliases forget that they named it before (`previous` goes if it names it). Does nothing to a retiring version. Fails
 * with -EBUSY if other aliases name the version (the message lists them), and -EINVAL if it is in another state. */
int registry_retire(struct registry *registry, struct version *version, struct error *error);

/* Checks that the version may be retired by force. Fails with -EBUSY if it has pins (the message lists them). */
int version_check_unpinned(const struct version *version, struct error *error);

/* Adds what its owner is charged with for the version. Of bytes: those of segments that no other version holds. */
void version_add_coming(const struct version *version, struct quota_coming *coming);
/* Returns whether nobody wants the version any more: it is retiring, or is ready and has no name, and has neither leases nor
 * pins. */
bool version_unwanted(const struct version *version);
/* Returns whether, besides, no job reads it: the version can be freed. */
bool version_unused(const struct version *version);
/* Removes a retiring version, whose descriptors and charges the caller has taken. */
void registry_remove(struct registry *registry, struct version *version);

#endif
