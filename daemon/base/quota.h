/* What each uid holds, and how much it may. Everything that a peer can make
 * the daemon keep or start is charged here first. */
#ifndef GPUWM_DAEMON_QUOTA_H
#define GPUWM_DAEMON_QUOTA_H

#include "../../proto/errors.h"

#include <stdint.h>
#include <sys/types.h>

enum quota_kind {
	QUOTA_SESSIONS, /* connections */
	QUOTA_LEASES,
	QUOTA_REQUESTS, /* that wait for something */
	QUOTA_PUBLISHES, /* open ones; each holds a loader */
	QUOTA_CLAIMS, /* names that it is to build */
	QUOTA_VERSIONS, /* versions that have not failed; this and the kinds below leave out what operators made */
	QUOTA_BYTES, /* of segments, promised or held, on all devices together */
	QUOTA_FDS, /* descriptors of segments and indices */
	QUOTA_INDEX_BYTES,
	QUOTA_KINDS,
};

#define QUOTA_NONE UINT64_MAX /* no limit */

/* Figures by kind, and the configuration key that changes each ("leases_per_uid"). */
struct quota_limits {
	uint64_t per_uid[QUOTA_KINDS];
};
extern const char *const quota_keys[QUOTA_KINDS];
extern const char *const quota_names[QUOTA_KINDS]; /* "leases": what is charged, on the wire */
extern const struct quota_limits quota_defaults;

struct quota; /* a table of users; a user without charges is forgotten */
struct quota_user;

/* NULL: out of memory. */
struct quota *quota_new(const struct quota_limits *limits);
/* From now on; what is charged above them stays. */
void quota_set_limits(struct quota *quota, const struct quota_limits *limits);
/* After every charge was given back. */
struct quota *quota_free(struct quota *quota);

/* What was charged; gives itself back. It may be moved by copy and zeroing. Zeroed: nothing. */
struct quota_charge {
	struct quota *quota;
	struct quota_user *user;
	enum quota_kind kind;
	uint64_t amount;
};

/* Charges one. -EDQUOT names the limit, its figure and its key; -ENOMEM. */
int quota_charge(struct quota *quota, uid_t uid, enum quota_kind kind, struct quota_charge *ret,
		 struct error *error);
/* Charges an amount, which may be 0 and grow later. */
int quota_charge_amount(struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t amount,
			struct quota_charge *ret, struct error *error);
/* Charges what the user held before a restart, above the limit too. -ENOMEM. */
int quota_adopt(struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t amount, struct quota_charge *ret,
		struct error *error);
/* Charges the same user with more. A zeroed charge stays one: 0. -EDQUOT. */
int quota_grow(struct quota_charge *charge, uint64_t more, struct error *error);
/* Gives back all above `amount`. A zeroed charge stays one. */
void quota_shrink(struct quota_charge *charge, uint64_t amount);
/* Twice is fine. */
void quota_release(struct quota_charge *charge);
uint64_t quota_used(const struct quota *quota, uid_t uid, enum quota_kind kind);

/* The users that have charges; NULL: the first; NULL at the end. */
const struct quota_user *quota_next_user(const struct quota *quota, const struct quota_user *after);
uid_t quota_user_uid(const struct quota_user *user);

#endif
