/* Regions: memory that stays writable, and the processes that use it. Plain data without a loop, a socket or a process.
 *
 *                   stored              its owner dies or closes it, it is removed or damaged
 *   making ─────────────────▶ ready ──────────────────────────────────────────────────────────▶ ended
 *
 * A region that has ended stays in the table until its users have gone and nothing works on its descriptors: its users still
 * map its memory, so it stays charged, and they still wait on its control memory. So it does after a restart. */
#ifndef GPUWM_DAEMON_REGION_H
#define GPUWM_DAEMON_REGION_H

#include "segment.h"
#include "../../proto/control.h"
#include "../config/rules.h"

#include <stdbool.h>

struct region;
struct region_figures;

enum region_state { REGION_MAKING, REGION_READY, REGION_ENDED };
const char *region_state_name(enum region_state state);

/* Descriptors that are charged: of a region, its memory and its control memory; of a user, its pidfd. */
#define REGION_FDS 2
#define REGION_USER_FDS 1

/* What a region is to be, and stays. */
struct region_wish {
	const char *name; /* NULL: it has none */
	struct device *device;
	uid_t uid;
	bool by_operator; /* it was made on admin.sock, counts for no quota, and is operators' */
	const struct region_kind *kind;
	unsigned share; /* percent of what base/share.h leaves to its user on the device; 0: SHARE_PERCENT */
	bool many_writers, owned_by_uid;
	bool clear; /* of scratch: each new holder is told to clear it */
	uint64_t bytes; /* that its users get */
	uint64_t memory_bytes; /* the same, rounded up to the device's granularity */
	uint64_t item_bytes, block_bytes, ttl_ms;
	struct control_shape shape;
};

enum region_user_state {
	USER_COMING,
	USER_STORING, /* the fd store is being told of its pidfd: it is not freed before */
	USER_HERE, /* the state has it, and the control memory names it */
	USER_GOING,
};

/* A process that uses a region. */
struct region_user {
	struct region *region;
	unsigned slot;
	struct version_id use; /* the secret that gives the slot back */
	uid_t uid;
	uint64_t pid; /* 0: of another PID namespace */
	char command[CONTROL_COMMAND_BYTES];
	int pidfd; /* -1: it was not taken yet */
	uint64_t stored_as; /* the pidfd's name in the fd store; 0: it is not there */
	bool write;
	bool owns; /* it may allocate; or the region ends with it */
	bool by_operator; /* it counts for no quota */
	enum region_user_state state;
	unsigned rooms; /* descriptors that the registry counts for it (registry_take_fds) */
	uint64_t since_ms; /* since 1970 */
	struct quota_charge charge; /* of its pidfd */
	void *watch; /* of its pidfd; the floors above have it */
};

/* What gpuwmd wrote about a slot into the control memory. What is there at gpuwmd's start counts as that. */
struct region_slot {
	uint32_t generation, here, pid;
};

/* Who has scratch memory. The state has it, and is saved before anybody is told. */
struct region_scratch {
	bool is_held;
	unsigned holder; /* a slot */
	/* The use that was the last to hold the memory, and to give it back. It may have ended. Zeros: there was none. */
	struct version_id written_by;
};

struct region {
	struct version_id id;
	char name[NAME_BYTES_MAX + 1]; /* "": it has none */
	enum region_state state;
	struct region_wish is; /* its name is not set */
	int memory_fd, control_fd; /* -1: none */
	uint64_t memory_stored_as, control_stored_as; /* names in the fd store; 0: it is not there */
	struct control control; /* head NULL: it is not mapped */
	struct region_user *users[REGION_USERS_MAX]; /* by slot; NULL: it is free */
	struct region_slot slots[REGION_USERS_MAX];
	uint64_t left_at
		[REGION_USERS_MAX]; /* the table's count of departures when the slot became free; 0: it was never taken */
	uint32_t had_users; /* slots that were ever taken, a bit for each */
	uint64_t created_ms; /* since 1970 */
	struct error error; /* why it has ended */
	enum control_end end;
	unsigned ended_by; /* a slot */
	unsigned
		busy; /* jobs, and calls to the fd store and the thread pool, that have not ended: it is not freed before */
	unsigned rooms; /* descriptors that the registry counts for it */
	struct region_scratch scratch; /* of a region of that kind */
	struct rule_cache rule;
	struct shared_charge *memory_charge; /* of the device; NULL: none */
	struct quota_charge count_charge, fds_charge;
	struct region *next;
};

struct region_table {
	struct region *first, **end; /* by age */
	uint64_t count, users, departures;
	uint64_t bytes; /* of all regions' memory */
};

void region_table_init(struct region_table *table);
/* Frees all regions. Closes their descriptors and those of their users. */
void region_table_clear(struct region_table *table);
/* Returns the region with this id, or NULL. */
struct region *region_find(const struct region_table *table, const struct version_id *id);
/* The same for a name: the region that has it now, else the last one with this name that has ended and is still there. */
struct region *region_find_name(const struct region_table *table, const char *name);
/* Returns the user whose secret this is, or NULL. */
struct region_user *region_find_user(const struct region_table *table, const struct version_id *use);

/* Adds a region that is being made, without memory. Charges nothing. Sets *ret_region, which belongs to the table. Fails with
 *   -EEXIST  A region that has not ended has the name.
 *   -EDQUOT  There are REGIONS_MAX regions.
 *   -EIO, -ENOMEM */
int region_add(struct region_table *table, const struct region_wish *wish, struct region **ret_region,
	       struct error *error);
/* The same for a region of a snapshot, with this id, which must not be there. */
int region_adopt(struct region_table *table, const struct region_wish *wish, const struct version_id *id,
		 struct region **ret_region, struct error *error);
/* Charges the device with its memory, and its user (unless an operator made it) with a region, its bytes and its two descriptors.
 * adopt: even beyond the limits. On errors nothing is charged. Fails with -ENOSPC, -EDQUOT and -ENOMEM. */
int region_charge(struct region *region, struct quota *quota, bool adopt, struct error *error);
/* Returns whether the user lacks quota for such a region and its first user, and will have it without doing anything. */
bool region_quota_comes(const struct quota *quota, const struct region_wish *wish);
/* Checks what budgets and quotas do not: a user's regions have at most half of a device, of what the rule of base/share.h leaves, or what
 * wish->share says; and operators find the table full. Fails with -EDQUOT. */
int region_check_share(const struct region_table *table, const struct region_wish *wish,
		       const struct quota *quota, struct error *error);
/* A region that has ended is charged to a user whose processes still map it: to the one who pays already, else to who made it, else to
 * another one; to nobody, if only operators map it. Call it when the region ends, and when a user has gone. Without memory for a charge
 * nobody is charged. */
void region_repay(struct region *region);
/* Adds to the text who still maps regions of the device that have ended, a few of them: ": python (pid 7, uid 1000)". */
void region_name_mappers(const struct region_table *table, const struct device *device, char *text,
			 size_t size);
/* Removes a region that has no users, and is not busy. Gives its charges back, unmaps its control memory, and closes its
 * descriptors. */
void region_free(struct region_table *table, struct region *region);

/* ---- the control memory: region_control.c ---- */

/* Control memory that no region has yet. */
struct region_control {
	struct control_shape shape;
	int fd;
	void *address;
};
/* Makes control memory: a memfd of mode 0600 that nobody can resize, mapped. Any thread may call it: 262,144 blocks take 5 ms. Fails with
 * -ENOMEM, -EMFILE and -ENFILE. */
int region_control_new(struct control_shape shape, struct region_control *ret);
/* Unmaps and closes it. */
void region_control_free(const struct region_control *control);
/* Makes it the control memory of the region, which has none and has this shape. */
void region_take_control(struct region *region, const struct region_control *made);
/* Sets the error of region_control_new, and returns its code. */
int region_control_failed(int code, struct error *error);
/* Makes the control memory of a region in one step. Fails as region_control_new. */
int region_make_control(struct region *region, struct error *error);
/* Maps the control memory of a region whose control_fd is set. Fails with -ENOMEM. */
int region_map_control(struct region *region, struct error *error);
/* Unmaps it, if it is mapped. Returns its descriptor, which is the caller's then, or -1. */
int region_drop_control(struct region *region);

/* ---- what gpuwmd writes there, and others do not: region_control.c ---- */

/* Name the user in the control memory, and forget it there: see control_user_came and control_user_left. */
void region_user_came(struct region_user *user);
uint32_t region_user_left(struct region_user *user);
/* What the control memory says of slots becomes what gpuwmd wrote: for region_map_control. */
void region_slots_read(struct region *region);
/* Returns what is wrong with the control memory of a region that is ready, or NULL. */
const char *region_damage(const struct region *region);

/* ---- its users: region_user.c ---- */

/* Adds a user in the slot that was free for longest, with a new secret unless `like` has one. From `like` come uid, pid, command,
 * pidfd, write, owns and by_operator too. The pidfd moves in. Fails with -EDQUOT (REGION_USERS_MAX users), -EIO and -ENOMEM. */
int region_user_add(struct region_table *table, struct region *region, const struct region_user *like,
		    struct region_user **ret_user, struct error *error);
/* The same for a user of a snapshot. Its slot, secret and times come from `like` too. Fails with -EINVAL, -EEXIST and -ENOMEM. */
int region_user_adopt(struct region_table *table, struct region *region, const struct region_user *like,
		      struct region_user **ret_user, struct error *error);
/* Charges its uid with its pidfd, unless it is an operator's. adopt: even beyond the limit. Fails with -EDQUOT and -ENOMEM. */
int region_user_charge(struct region_user *user, struct quota *quota, bool adopt, struct error *error);
/* Returns whether the uid lacks quota for that, and will have it without doing anything. */
bool region_user_quota_comes(const struct quota *quota, uid_t uid);
/* Removes a user, gives its charge back, and closes its pidfd. */
void region_user_free(struct region_table *table, struct region_user *user);
/* Returns the user that owns the region, or NULL. */
struct region_user *region_owner(const struct region *region);
/* Returns whether no slot is taken. */
bool region_is_unused(const struct region *region);
/* Returns whether the region ends when this user goes. */
bool region_ends_with(const struct region_user *user);

/* ---- who has scratch memory: region_scratch.c ---- */

/* Returns the user that has the memory, or NULL. */
struct region_user *region_scratch_holder(const struct region *region);
/* Gives the memory, which nobody has, to the user. The caller saves the state before it tells anybody. */
void region_scratch_give(struct region_user *user);
/* Takes the memory from the user. untouched: it has the bytes that it had before. Returns false if the user did not have it. */
bool region_scratch_take_back(struct region_user *user, bool untouched);
/* Returns whether another use has held the memory since this one did last. */
bool region_scratch_is_foreign(const struct region_user *user);

/* Ends a region for this reason, unless it has ended. Returns whether it had not ended before. The caller saves the state, and then
 * calls region_show_end. */
bool region_end(struct region *region, enum control_end end, unsigned by, const struct error *why);
/* Writes into the control memory, if that is mapped, that the region has ended, so that its users see it. */
void region_show_end(const struct region *region);

/* ---- what the control memory says: region_kind.c ----
 * Whoever uses the region may write anything there. The figures are bounded by what the region has. */

struct region_figures {
	uint64_t bytes_used; /* of all kinds but a queue */
	uint64_t chunks_used, largest_free; /* of a pool */
	uint64_t messages; /* of a queue */
	uint64_t blocks_owned, blocks_ready,
		blocks_held; /* of blocks; the held ones are not counted as ready */
	/* By slot: the chunks that it holds or is expected to take, the blocks that it owns or holds, or 1 for who has scratch memory. */
	uint64_t holds[REGION_USERS_MAX];
};
void region_look(const struct region *region, struct region_figures *ret);
/* The same without largest_free and holds, which stay 0: many times as fast, for lists of all regions. */
void region_count(const struct region *region, struct region_figures *ret);

/* A chunk that is in use. */
struct region_chunk {
	uint32_t chunk;
	uint64_t word, offset, bytes, since_ms;
};
/* region_pool.c: finds the chunks that have been in use for longest, `most` at the most; the oldest first. Returns how many. */
size_t region_oldest(const struct region *region, struct region_chunk *ret, size_t most);

/* ---- kinds ----
 * In what gpuwmd treats them differently. A kind is a struct in a file of its own, region_*.c, and a row of the table in region_kind.c.
 * What a request for one may say is in proto/wire/region_rules.c, and so is what the state may say. What the control memory has for each
 * is in proto/control.h. */

struct region_kind {
	const char *name; /* in messages and in the state */
	const char *item; /* what a user loses who exits, in the log */
	/* A process owns a region of this kind, and allocates from it. The others belong to no process. */
	bool has_owner;
	/* Its users get the bytes that were asked for. Else they get them rounded up to the device's granularity. */
	bool has_exact_bytes;
	/* One user holds the memory at a time (struct region_scratch). */
	bool has_holder;
	/* What is wrong with the control memory, besides what control_damage finds, or NULL. NULL: control_damage finds all. */
	const char *(*damage)(const struct region *region);
	/* Adds what the control memory says, bounded by what the region has. `look` also sets largest_free and holds. */
	void (*count)(const struct region *region, struct region_figures *ret);
	void (*look)(const struct region *region, struct region_figures *ret);
};

extern const struct region_kind region_kind_pool, region_kind_queue, region_kind_blocks, region_kind_scratch;

/* Sets *ret to the kind of this name. Returns 0. Fails with -EINVAL; the message names it. */
int region_kind_find(const char *name, const struct region_kind **ret, struct error *error);

#endif
