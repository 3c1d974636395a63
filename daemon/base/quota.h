/* What each uid holds, and how much it may hold. gpuwmd charges here first whatever a peer can make it keep or start. */
#ifndef GPUWM_DAEMON_QUOTA_H
#define GPUWM_DAEMON_QUOTA_H

#include "quotas.h"
#include "../../base/errors.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define QUOTA_MEMBER(kind, ...) QUOTA_##kind,
enum quota_kind { QUOTAS(QUOTA_MEMBER) QUOTA_KINDS };
#undef QUOTA_MEMBER

#define QUOTA_NONE UINT64_MAX /* no limit */

/* What quotas.h says of each. */
struct quota_row {
	const char *name, *key, *noun;
	bool in_bytes;
};
extern const struct quota_row quota_rows[QUOTA_KINDS];

struct quota_limits {
	uint64_t per_uid[QUOTA_KINDS];
};
extern const struct quota_limits quota_defaults;

struct quota; /* a table of users; a user without charges is forgotten */
struct quota_user;

/* Returns NULL if there is no memory. */
struct quota *quota_new(const struct quota_limits *limits);
/* Sets the limits for new charges. Older charges stay, even beyond the limits. */
void quota_set_limits(struct quota *quota, const struct quota_limits *limits);
/* Frees the table, whose charges have all been given back. Returns NULL. */
struct quota *quota_free(struct quota *quota);

/* What was charged, for quota_release. To move it, copy and zero it. Zeroed: nothing. */
struct quota_charge {
	struct quota *quota;
	struct quota_user *user;
	enum quota_kind kind;
	uint64_t amount;
};

/* Charges one. Fails with -EDQUOT (the message has the limit, its figure and its key) and -ENOMEM. */
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
