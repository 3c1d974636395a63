/* Open publishes: who builds which part, who checks it. On top of the
 * registry; knows no sockets and no loop.
 *
 * A part (rank, device) is begun by a publisher, committed by it, and checked
 * by a loader, in any order of the last two. When all parts that were begun
 * are both, and every rank has one, the version is ready. When a publisher dies or aborts
 * before its commit, or a check fails, the version fails with all its parts; also when the last of those
 * who began one ends while a rank has none: nobody is left to begin it.
 */
#ifndef GPUWM_DAEMON_PUBLISH_H
#define GPUWM_DAEMON_PUBLISH_H

#include "registry.h"

struct publish_part {
	uint32_t replica; /* position in version->replicas */
	void *publisher; /* the session, or the loader's job; NULL after its commit or death */
	const void *beginner; /* the same also after its commit; NULL when it has ended */
	void *checker; /* the job that checks; NULL when it has ended */
	const uint64_t *heard_ms; /* steady: the publisher's last sign of life; NULL: its loader is watched */
	uint64_t silence_ms; /* so long it may give none before its commit */
	uint64_t doubted_ms; /* steady: the first look that found it silent for too long; 0: none */
};

struct publish {
	struct version_id id;
	struct version *version;
	char alias[NAME_BYTES_MAX + 1]; /* moved when ready; "": none */
	bool has_expect; /* the version fails if the alias does not name `expect` (zero: nothing) when it would be ready */
	struct version_id expect;
	bool retire_old; /* what the alias named before is retired */
	gid_t *groups; /* of the user who began it: they may give the right to move the alias; malloced, NULL: not known */
	size_t group_count;
	struct publish_part *parts; /* never moves: room for PARTS_PER_VERSION_MAX */
	uint32_t part_count;
	struct quota_charge charge;
	struct publish *next;
};

struct publish_table; /* of open ones */
struct publish_table *publish_table_new(void);
struct publish_table *publish_table_free(struct publish_table *table);
uint64_t publish_count(const struct publish_table *table);
struct publish *publish_next(const struct publish_table *table, const struct publish *after); /* NULL: first */

struct publish_request {
	const char *model, *tag, *alias; /* alias "": none */
	const struct version_id *expect; /* of the alias, as in publish; NULL: whatever it names */
	bool retire_old; /* as in publish */
	struct device *device;
	uint32_t rank, world;
	uint64_t bytes;
	const struct version_id *join; /* NULL: a new one */
	const struct joiners *joiners; /* the users and groups that may join a new publish; NULL: none */
	void *publisher;
	uid_t uid;
	bool by_operator;
	const gid_t *groups; /* of the uid, copied; only if there is an alias */
	size_t group_count;
	const uint64_t *heard_ms; /* as in publish_part; valid as long as the publisher lives */
	uint64_t silence_ms; /* as in publish_part */
};

/* Begins a publish, or joins one: charges the budget, adds the part. -ENOENT: no such publish
 * to join; -EINVAL: another name, alias or world than the publish's; what registry_alias_allowed, registry_add, version_add_replica,
 * budget_charge and quota_charge give. quota NULL: a load's (by_operator), which is bounded by the loaders, and
 * must not wait for what a user's workers left open. Nothing is left behind on errors. */
int publish_begin(struct publish_table *table, struct registry *registry, struct quota *quota,
		  const struct publish_request *request, struct publish **ret_publish,
		  struct publish_part **ret_part, struct error *error);
/* NULL: not open. */
struct publish *publish_find(const struct publish_table *table, const struct version_id *id);
/* -ENOENT, for those too who may not take part in it. */
int publish_unknown(const struct version_id *id, struct error *error);
struct publish_part *publish_part_find(struct publish *publish, uint32_t rank, const struct device *device);

/* Whoever this is has ended. True: it was the last of those who began a part. */
bool publish_leave(struct publish *publish, const void *beginner);

/* The publisher says that it handed everything in. -EACCES: the part is
 * another publisher's; -EBADMSG: the check found another content than promised. Again with the same
 * content: 0. */
int publish_commit(struct publish *publish, struct publish_part *part, void *publisher,
		   const struct digest *content, struct error *error);

/* What a checker hands over: moved into the replica on success. */
struct publish_checked {
	struct held_fd index;
	struct held_fd *segments; /* malloced; moves too */
	uint32_t segment_count;
	uint64_t tensors;
	struct digest layout, content;
};
/* -EBADMSG: the segments exceed what was charged (budget shrinks to what is used), or another content than was promised;
 * -EDQUOT: STORE_FDS_MAX descriptors in all, or more than PART_SEGMENTS_MAX segments;
 * -EEXIST: checked already. */
int publish_checked(struct registry *registry, struct publish *publish, struct publish_part *part,
		    struct publish_checked *checked, struct error *error);

/* Closes an open publish whose version is complete (made ready by the caller)
 * or failed: forgets it and gives the quota back. */
void publish_end(struct publish_table *table, struct publish *publish);

#endif
