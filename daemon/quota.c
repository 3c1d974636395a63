#include "quota.h"
#include "hash.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

const char *const quota_keys[QUOTA_KINDS] = {
	[QUOTA_SESSIONS] = "sessions_per_uid", [QUOTA_LEASES] = "leases_per_uid",
	[QUOTA_REQUESTS] = "requests_per_uid", [QUOTA_PUBLISHES] = "publishes_per_uid",
	[QUOTA_CLAIMS] = "claims_per_uid",
};

static const char *const quota_nouns[QUOTA_KINDS] = {
	[QUOTA_SESSIONS] = "connections",     [QUOTA_LEASES] = "leases", [QUOTA_REQUESTS] = "waiting requests",
	[QUOTA_PUBLISHES] = "open publishes", [QUOTA_CLAIMS] = "claims",
};

const struct quota_limits quota_defaults = {
	.per_uid =
		{
			[QUOTA_SESSIONS] = SESSIONS_PER_UID_MAX,
			[QUOTA_LEASES] = LEASES_PER_UID_MAX,
			[QUOTA_REQUESTS] = REQUESTS_PER_UID_MAX,
			[QUOTA_PUBLISHES] = PUBLISHES_PER_UID_MAX,
			[QUOTA_CLAIMS] = CLAIMS_PER_UID_MAX,
		},
};

struct quota_user {
	uid_t uid;
	uint64_t used[QUOTA_KINDS], sum;
	UT_hash_handle hh;
};

struct quota {
	struct quota_limits limits;
	struct quota_user *users;
};

struct quota *quota_new(const struct quota_limits *limits)
{
	struct quota *quota = calloc(1, sizeof(*quota));

	if (quota)
		quota->limits = *limits;
	return quota;
}

void quota_set_limits(struct quota *quota, const struct quota_limits *limits)
{
	quota->limits = *limits;
}

struct quota *quota_free(struct quota *quota)
{
	struct quota_user *user, *next;

	if (!quota)
		return NULL;
	HASH_ITER(hh, quota->users, user, next)
	{
		HASH_DEL(quota->users, user);
		free(user);
	}
	free(quota);
	return NULL;
}

static struct quota_user *user_find(const struct quota *quota, uid_t uid)
{
	struct quota_user *user;

	HASH_FIND(hh, quota->users, &uid, sizeof(uid), user);
	return user;
}

static struct quota_user *user_add(struct quota *quota, uid_t uid)
{
	struct quota_user *user = calloc(1, sizeof(*user));

	if (!user)
		return NULL;
	user->uid = uid;
	HASH_ADD(hh, quota->users, uid, sizeof(uid), user);
	if (!user->hh.tbl) {
		free(user);
		return NULL;
	}
	return user;
}

static int exhausted(const struct quota *quota, uid_t uid, enum quota_kind kind, struct error *error)
{
	char detail[128];

	snprintf(detail, sizeof(detail), "%s in [limits] of gpuwmd's configuration changes it",
		 quota_keys[kind]);
	return error_set(error, -EDQUOT, detail, "uid %u has all %llu %s that it may have", (unsigned)uid,
			 (unsigned long long)quota->limits.per_uid[kind], quota_nouns[kind]);
}

int quota_charge(struct quota *quota, uid_t uid, enum quota_kind kind, struct quota_charge *ret,
		 struct error *error)
{
	struct quota_user *user = user_find(quota, uid);

	if ((user ? user->used[kind] : 0) >= quota->limits.per_uid[kind])
		return exhausted(quota, uid, kind, error);
	if (!user)
		user = user_add(quota, uid);
	if (!user)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	user->used[kind]++;
	user->sum++;
	*ret = (struct quota_charge){.quota = quota, .user = user, .kind = kind};
	return 0;
}

void quota_release(struct quota_charge *charge)
{
	struct quota_user *user = charge->user;

	if (!user)
		return;
	user->used[charge->kind]--;
	if (--user->sum == 0) {
		HASH_DEL(charge->quota->users, user);
		free(user);
	}
	*charge = (struct quota_charge){0};
}

uint64_t quota_used(const struct quota *quota, uid_t uid, enum quota_kind kind)
{
	const struct quota_user *user = user_find(quota, uid);

	return user ? user->used[kind] : 0;
}
