/* Open publishes: which session builds which part, and which job checks it. They build on the registry, and know no socket and
 * no loop.
 *
 * A publisher begins a part (a rank on a device). Then the publisher commits it and a loader checks it, in any order. The
 * version is ready when every rank has a part, and all parts are committed and checked. The version fails, with all of its
 * parts, if a publisher dies or aborts before its commit, or if a check fails. It also fails if the last session that began
 * a part ends while a rank has no part, because nobody is left to begin that part.
 */
#ifndef GPUWM_DAEMON_PUBLISH_H
#define GPUWM_DAEMON_PUBLISH_H

#include "registry.h"

struct publish;

/* The memory of a part that gpuwmd gave: memfds, which no checker reads. -1: none, or it has become the version's. */
struct given {
	int segment, index;
};
void given_close(const struct given *given);

struct publish_part {
	struct publish *publish; /* that it belongs to */
	uint32_t replica; /* position in version->replicas */
	void *publisher; /* the session, or the loader's job; NULL after the commit, or when the publisher has ended */
	const void *beginner; /* the same, but it stays after the commit; NULL when it has ended */
	void *checker; /* the job that checks the part; NULL when it has ended */
	const uint64_t *
		heard_ms; /* steady: the publisher's last sign of life; NULL: gpuwmd watches its loader instead */
	struct given given;
	uint64_t silence_ms; /* how long the publisher may give no sign of life before its commit */
	uint64_t doubted_ms; /* steady: when gpuwmd first found the publisher silent for too long; 0: not yet */
	uint64_t fds; /* descriptors that the version's owner was charged with at the begin */
};

struct publish {
	struct version_id id;
	struct version *version;
	char alias[NAME_BYTES_MAX + 1]; /* gpuwmd moves it when the version is ready; "": none */
	/* The version fails if the alias does not name the version `expect` (zero: no version) when it would be ready. */
	bool has_expect;
	struct version_id expect;
	bool retire_old; /* the version that the alias named before is retired */
	gid_t *groups; /* malloced: of the user who began it, who may move the alias because of one; NULL: not known */
	size_t group_count;
	struct publish_part *parts; /* has room for PARTS_PER_VERSION_MAX, so that no part moves */
	uint32_t part_count;
	struct quota_charge charge;
	struct publish *next;
};

struct publish_table; /* opaque: the open publishes */
struct publish_table *publish_table_new(void);
struct publish_table *publish_table_free(struct publish_table *table);
uint64_t publish_count(const struct publish_table *table);
/* Returns the publish after `after` (NULL: the first one), or NULL at the end. */
struct publish *publish_next(const struct publish_table *table, const struct publish *after);

struct publish_request {
	const char *model, *tag; /* both NULL: the version has no name, one rank and no joiners */
	const char *alias; /* "": none */
	const struct version_id *expect; /* of the alias, as in publish; NULL: whatever it names */
	bool retire_old; /* as in publish */
	struct device *device;
	uint32_t rank, world;
	uint64_t bytes;
	const struct version_id *join; /* the publish to join; NULL: a new one begins */
	const struct joiners *joiners; /* the users and groups that may join a new publish; NULL: none */
	struct version_cache cache; /* of a new publish */
	void *publisher;
	uid_t uid;
	bool by_operator;
	const gid_t *groups; /* of the uid, copied; only if there is an alias */
	size_t group_count;
	const uint64_t *heard_ms; /* as in publish_part; valid as long as the publisher lives */
	uint64_t silence_ms; /* as in publish_part */
	uint64_t segments; /* how many the part will have */
};

/* Returns how many descriptors a part of so many segments has: the segments and an index. */
static inline uint64_t part_fds(uint64_t segments)
{
	return segments + 1;
}

/* Checks that operators may have one more version, and its descriptors, for a better refusal than that of registry_add: the loads of
 * publish_begin have no quota. Fails with -EDQUOT. */
int publish_check_operators(const struct quota *quota, const struct publish_request *request,
			    struct error *error);
/* Begins a publish or joins one, charges the budget, and adds the part. Sets *ret_part, which belongs to the table, as its
 * publish does. quota NULL: the publish of a load counts for no quota. The number of loaders limits loads, and a load must not wait
 * for publishes that a user left open. Fails, and changes nothing, with
 *   -ENOENT  There is no such publish to join.
 *   -EINVAL  The publish to join has another name, alias or world.
 *   the errors of registry_alias_allowed, registry_add, version_add_replica, budget_charge and quota_charge */
int publish_begin(struct publish_table *table, struct registry *registry, struct quota *quota,
		  const struct publish_request *request, struct publish_part **ret_part, struct error *error);
/* Returns the open publish with this id, or NULL. */
struct publish *publish_find(const struct publish_table *table, const struct version_id *id);
/* Sets the error of a publish that is not open, or that the session may not take part in. Returns -ENOENT. */
int publish_unknown(const struct version_id *id, struct error *error);
struct publish_part *publish_part_find(struct publish *publish, uint32_t rank, const struct device *device);

/* Returns whether a part that is not committed is this session's or job's. */
bool publish_has_publisher(const struct publish *publish, const void *publisher);
/* This session or job has ended. Returns true if it was the last one that began a part and had not ended. */
bool publish_leave(struct publish *publish, const void *beginner);

/* Commits a part: its publisher has handed everything in, and promises this content. Returns 0 also if the part was committed
 * with the same content before. Fails with -EACCES if the part is another publisher's, and with -EBADMSG if the check found
 * another content. */
int publish_commit(struct publish *publish, struct publish_part *part, void *publisher,
		   const struct digest *content, struct error *error);

/* What a checker found. On success the descriptors move into the part, but for those of segments that are resident already: they
 * stay in `part`, for the caller to close. */
struct publish_checked {
	struct part part;
	struct segment *resident
		[PART_SEGMENTS_MAX]; /* another version's segment, which becomes this one; NULL: a new one */
	uint64_t tensors;
	struct digest layout, content;
};
/* Enters the result of a check into the part. Of its charge each new segment gets its bytes, and the rest returns. Fails with
 *   -EBADMSG  The new segments have more bytes than were charged, a resident one has other bytes, or the content is not the one
 *             that was promised.
 *   -EDQUOT   All versions together would have more than STORE_FDS_MAX descriptors.
 *   -EEXIST   The part was checked before.
 *   -ENOMEM */
int publish_checked(struct registry *registry, struct publish *publish, struct publish_part *part,
		    struct publish_checked *checked, struct error *error);

/* Ends an open publish whose version the caller has made ready, or has failed: forgets the publish, and gives its quota
 * back. */
void publish_end(struct publish_table *table, struct publish *publish);

#endif
