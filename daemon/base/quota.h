/* What each uid holds, and how much it may hold. gpuwmd charges here first whatever a peer can make it keep or start. */
#ifndef GPUWM_DAEMON_QUOTA_H
#define GPUWM_DAEMON_QUOTA_H

#include "../../base/errors.h"
#include "share.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- the table of quotas ----
 * What a user may hold, a row each. Configuration, limits, refusals and the list of users are made of this table, and so is the table of
 * docs/how-to/users.md, which tests/unit/daemon_quota.c compares.
 *
 *   QUOTA(KIND, name, unit, all, most, noun, help)
 *
 *   KIND   QUOTA_KIND of enum quota_kind
 *   name   what a user is charged with, in the result of `clients`. NAME_per_uid is the key in [limits], and in the limits
 *          that hello tells
 *   unit   THINGS or BYTES
 *   all    how many operators and users may hold together, which they share by the rule of share.h; 0: there is no such number
 *   most   the limit of one user unless the configuration has the key. QUOTA_NONE: share.h says it, or nobody does
 *   noun   what a refusal says after the limit ("uid 7 may have 5 leases")
 *   help   what the key means, for gpuwmd --help
 *
 * Versions that operators made count for no quota. proto/wire/messages_session.c and proto/wire/messages_look.c have the names as
 * docs/protocol.md writes them, and tests/unit/daemon_quota.c compares them with this table. exporter/metrics_users.c has a metric for
 * each, which tests/unit/exporter_snapshot.c compares. */

#define QUOTAS(QUOTA)                                                                                                                     \
	QUOTA(SESSIONS, "sessions", THINGS, SESSIONS_MAX, QUOTA_NONE, "connections",                                                      \
	      "connections of one user to the workers' socket")                                                                           \
	QUOTA(LEASES, "leases", THINGS, 0, LEASES_PER_UID_MAX, "leases", "leases of one user")                                            \
	QUOTA(REQUESTS, "requests", THINGS, 0, REQUESTS_PER_UID_MAX, "waiting requests",                                                  \
	      "requests of one user that wait for something")                                                                             \
	/* Each open publish holds a loader, and users get loaders in turn. */                                                            \
	QUOTA(PUBLISHES, "publishes", THINGS, 0, PUBLISHES_PER_UID_MAX, "open publishes",                                                 \
	      "open publishes of one user, and parts of one user that are checked at the same time")                                      \
	QUOTA(CLAIMS, "claims", THINGS, 0, CLAIMS_PER_UID_MAX, "claims",                                                                  \
	      "versions that processes of one user have claimed to build and not built yet")                                              \
	QUOTA(VERSIONS, "versions", THINGS, VERSIONS_MAX, QUOTA_NONE, "versions",                                                         \
	      "versions that one user has published and that did not fail")                                                               \
	QUOTA(NAMELESS, "nameless", THINGS, NAMELESS_MAX, QUOTA_NONE, "versions without a name",                                          \
	      "versions without a name that one user has published and that did not fail")                                                \
	QUOTA(REGIONS, "regions", THINGS, REGIONS_MAX, QUOTA_NONE, "regions", "regions of one user")                                      \
	/* Each takes a process with a CUDA context besides its bytes. */                                                                 \
	QUOTA(COPIES, "copies", THINGS, COPIES_MAX, QUOTA_NONE, "copies by CUDA IPC",                                                     \
	      "copies for processes of one user that attach by cuda_ipc")                                                                 \
	/* Of segments, regions and copies, promised or held, on all devices together. What each device keeps for operators: device.c. */ \
	QUOTA(BYTES, "bytes", BYTES, 0, QUOTA_NONE, "of memory",                                                                          \
	      "memory of one user's versions, regions and copies, on all devices together; by default only the "                          \
	      "budgets limit it")                                                                                                         \
	QUOTA(FDS, "fds", THINGS, STORE_FDS_MAX, QUOTA_NONE, "descriptors in the store",                                                  \
	      "descriptors of one user's versions, regions, and processes that use regions")                                              \
	QUOTA(INDEX_BYTES, "index_bytes", BYTES, INDICES_BYTES_MAX, QUOTA_NONE, "of indices",                                             \
	      "bytes of the indices of one user's versions")

/* ---- what a user holds ---- */

#define QUOTA_MEMBER(kind, ...) QUOTA_##kind,
enum quota_kind { QUOTAS(QUOTA_MEMBER) QUOTA_KINDS };
#undef QUOTA_MEMBER

#define QUOTA_NONE SHARE_NONE /* no limit of its own */

/* What the table says of each. */
struct quota_row {
	const char *name, *key, *noun;
	bool in_bytes;
};
extern const struct quota_row quota_rows[QUOTA_KINDS];

struct quota_limits {
	uint64_t per_uid[QUOTA_KINDS];
	uint64_t all[QUOTA_KINDS]; /* 0: nobody shares it */
};
extern const struct quota_limits quota_defaults;

struct quota; /* a table of users; a user without charges is forgotten */
struct quota_user;

/* What a user's versions that are on their way to be freed give back. */
struct quota_coming {
	uint64_t versions; /* how many they are */
	uint64_t amounts[QUOTA_KINDS];
	uint64_t in_ms; /* when they go, from now; 0: they are going */
};
/* Adds to *ret, which is zeroed, what the user will get back. */
typedef void quota_coming_fn(void *data, uid_t uid, struct quota_coming *ret);

/* Returns how many of a table, which operators and users share, are taken by all of them together. */
typedef uint64_t quota_taken_fn(void *data, enum quota_kind kind);

/* Returns how many one user may have if nobody else has any; QUOTA_NONE: there is no limit. */
uint64_t quota_alone(const struct quota_limits *limits, enum quota_kind kind);

/* Returns NULL if there is no memory. */
struct quota *quota_new(const struct quota_limits *limits);
/* Sets the limits for new charges. Older charges stay, even beyond the limits. */
void quota_set_limits(struct quota *quota, const struct quota_limits *limits);
/* Sets how many of a table all may hold together, until the next quota_set_limits. */
void quota_set_all(struct quota *quota, enum quota_kind kind, uint64_t all);
/* What is taken beyond what users are charged with is operators'. */
void quota_set_taken(struct quota *quota, quota_taken_fn *taken, void *data);
/* Refusals say from now on what `coming` tells of the user. */
void quota_set_coming(struct quota *quota, quota_coming_fn *coming, void *data);
/* Returns whether the user lacks some of `needs`, and will have all of them without doing anything. */
bool quota_comes(const struct quota *quota, uid_t uid, const uint64_t needs[QUOTA_KINDS]);
/* Frees the table, whose charges have all been given back. Returns NULL. */
struct quota *quota_free(struct quota *quota);

/* What was charged, for quota_release. To move it, copy and zero it. Zeroed: nothing. */
struct quota_charge {
	struct quota *quota;
	struct quota_user *user;
	enum quota_kind kind;
	uint64_t amount;
};

/* Checks that operators may have `more`. -EDQUOT: all are taken. The refusal says who has most, and how an operator takes them back. */
int quota_check_operators(const struct quota *quota, enum quota_kind kind, uint64_t more, struct error *error);
/* Charges one. Fails with -EDQUOT and -ENOMEM. The refusal has the limit, its figure, its key, and what of it the user will get back
 * without doing anything. */
int quota_charge(struct quota *quota, uid_t uid, enum quota_kind kind, struct quota_charge *ret,
		 struct error *error);
/* Charges an amount, which may be 0 and grow later. */
int quota_charge_amount(struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t amount,
			struct quota_charge *ret, struct error *error);
/* Charges what the user held before a restart, even beyond the limit. Fails with -ENOMEM. */
int quota_adopt(struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t amount, struct quota_charge *ret,
		struct error *error);
/* Charges the same user with more. Returns 0 for a zeroed charge, which stays zeroed. Fails with -EDQUOT. */
int quota_grow(struct quota_charge *charge, uint64_t more, struct error *error);
/* Gives back what is charged beyond `amount`. A zeroed charge stays zeroed. */
void quota_shrink(struct quota_charge *charge, uint64_t amount);
/* Moves a part of the charge, which has at least `amount`, into *ret. Of a zeroed charge that is a zeroed charge. */
void quota_split(struct quota_charge *charge, uint64_t amount, struct quota_charge *ret);
/* Gives the charge back and zeroes it. A zeroed charge is fine. */
void quota_release(struct quota_charge *charge);
uint64_t quota_used(const struct quota *quota, uid_t uid, enum quota_kind kind);

/* Returns the user with charges after `after` (NULL: the first one), or NULL at the end. */
const struct quota_user *quota_next_user(const struct quota *quota, const struct quota_user *after);
uid_t quota_user_uid(const struct quota_user *user);

#endif
