#include "quota.h"
#include "hash.h"
#include "../../base/bytes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IN_BYTES_THINGS false
#define IN_BYTES_BYTES true
#define QUOTA_ROW(kind, name_, unit, most, noun_, help)                                                        \
	[QUOTA_##kind] = {                                                                                     \
		.name = (name_), .key = name_ "_per_uid", .noun = (noun_), .in_bytes = IN_BYTES_##unit},
const struct quota_row quota_rows[QUOTA_KINDS] = {QUOTAS(QUOTA_ROW)};

#define QUOTA_DEFAULT(kind, name, unit, most, noun, help) [QUOTA_##kind] = (most),
const struct quota_limits quota_defaults = {.per_uid = {QUOTAS(QUOTA_DEFAULT)}};

struct quota_user {
	uid_t uid;
	uint64_t used[QUOTA_KINDS], charges;
	UT_hash_handle hh;
};

struct quota {
	struct quota_limits limits;
	struct quota_user *users;
	quota_coming_fn *coming; /* may be NULL */
	void *coming_data;
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

void quota_set_coming(struct quota *quota, quota_coming_fn *coming, void *data)
{
	quota->coming = coming;
	quota->coming_data = data;
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

static bool fits(const struct quota *quota, enum quota_kind kind, uint64_t used, uint64_t more)
{
	const uint64_t most = quota->limits.per_uid[kind];

	return more == 0 || (used <= most && more <= most - used);
}

/* ---- what comes back by itself ---- */

static struct quota_coming coming_for(const struct quota *quota, uid_t uid)
{
	struct quota_coming coming = {0};

	if (quota->coming)
		quota->coming(quota->coming_data, uid, &coming);
	return coming;
}

bool quota_comes(const struct quota *quota, uid_t uid, const uint64_t needs[QUOTA_KINDS])
{
	const struct quota_coming coming = coming_for(quota, uid);
	bool lacks = false;

	for (enum quota_kind kind = 0; kind < QUOTA_KINDS; kind++) {
		const uint64_t used = quota_used(quota, uid, kind), back = coming.amounts[kind];

		if (fits(quota, kind, used, needs[kind]))
			continue;
		lacks = true;
		if (!fits(quota, kind, used > back ? used - back : 0, needs[kind]))
			return false;
	}
	return lacks;
}

/* ---- charges ---- */

#define FIGURE_TEXT 24 /* the digits of 64 bits, or what bytes_format writes */

/* "5", or "12.0 GiB". */
static const char *figure(enum quota_kind kind, uint64_t amount, char text[FIGURE_TEXT])
{
	if (quota_rows[kind].in_bytes)
		return bytes_format(amount, text);
	snprintf(text, FIGURE_TEXT, "%llu", (unsigned long long)amount);
	return text;
}

/* Says in the detail how much of the quota comes back by itself, if some does. */
static void tell_coming(const struct quota *quota, uid_t uid, enum quota_kind kind, char *detail, size_t size)
{
	const struct quota_coming coming = coming_for(quota, uid);
	char amount[FIGURE_TEXT], when[64] = "being freed";
	size_t used = strlen(detail);

	if (coming.amounts[kind] == 0)
		return;
	if (coming.in_ms > 0)
		snprintf(when, sizeof(when), "freed %llu ms from now", (unsigned long long)coming.in_ms);
	snprintf(detail + used, size - used,
		 ", or wait: %llu version%s of uid %u %s %s, which gives %s %s back%s",
		 (unsigned long long)coming.versions, coming.versions == 1 ? "" : "s", (unsigned)uid,
		 coming.versions == 1 ? "is" : "are", when, figure(kind, coming.amounts[kind], amount),
		 quota_rows[kind].noun,
		 coming.in_ms > 0 ? " (in the grace time after its start gpuwmd frees nothing, so that "
				    "workers can take their leases again)"
				  : "");
}

static int exhausted(const struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t used, uint64_t more,
		     struct error *error)
{
	char most[FIGURE_TEXT], held[FIGURE_TEXT], asked[FIGURE_TEXT];
	char detail[TEXT_BYTES_MAX + 1]; /* three short sentences */

	snprintf(detail, sizeof(detail), "an operator may raise %s in [limits] of gpuwmd's configuration",
		 quota_rows[kind].key);
	tell_coming(quota, uid, kind, detail, sizeof(detail));
	figure(kind, quota->limits.per_uid[kind], most);
	if (more == 1 && used == quota->limits.per_uid[kind])
		return error_set(error, -EDQUOT, detail, "uid %u has all %s %s that it may have", (unsigned)uid,
				 most, quota_rows[kind].noun);
	return error_set(error, -EDQUOT, detail, "uid %u may have %s %s; it has %s and asks for %s more",
			 (unsigned)uid, most, quota_rows[kind].noun, figure(kind, used, held),
			 figure(kind, more, asked));
}

static int check_limit(const struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t more,
		       struct error *error)
{
	const uint64_t used = quota_used(quota, uid, kind);

	if (fits(quota, kind, used, more))
		return 0;
	return exhausted(quota, uid, kind, used, more, error);
}

int quota_adopt(struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t amount, struct quota_charge *ret,
		struct error *error)
{
	struct quota_user *user = user_find(quota, uid);

	if (!user)
		user = user_add(quota, uid);
	if (!user)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	user->used[kind] += amount;
	user->charges++;
	*ret = (struct quota_charge){.quota = quota, .user = user, .kind = kind, .amount = amount};
	return 0;
}

int quota_charge_amount(struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t amount,
			struct quota_charge *ret, struct error *error)
{
	int r = check_limit(quota, uid, kind, amount, error);

	return r < 0 ? r : quota_adopt(quota, uid, kind, amount, ret, error);
}

int quota_charge(struct quota *quota, uid_t uid, enum quota_kind kind, struct quota_charge *ret,
		 struct error *error)
{
	return quota_charge_amount(quota, uid, kind, 1, ret, error);
}

int quota_grow(struct quota_charge *charge, uint64_t more, struct error *error)
{
	int r = charge->user ? check_limit(charge->quota, charge->user->uid, charge->kind, more, error) : 0;

	if (r < 0 || !charge->user)
		return r;
	charge->user->used[charge->kind] += more;
	charge->amount += more;
	return 0;
}

void quota_shrink(struct quota_charge *charge, uint64_t amount)
{
	if (!charge->user || charge->amount <= amount)
		return;
	charge->user->used[charge->kind] -= charge->amount - amount;
	charge->amount = amount;
}

void quota_split(struct quota_charge *charge, uint64_t amount, struct quota_charge *ret)
{
	*ret = *charge;
	if (!charge->user)
		return;
	charge->user->charges++;
	charge->amount -= amount;
	ret->amount = amount;
}

void quota_release(struct quota_charge *charge)
{
	struct quota_user *user = charge->user;

	if (!user)
		return;
	quota_shrink(charge, 0);
	if (--user->charges == 0) {
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

const struct quota_user *quota_next_user(const struct quota *quota, const struct quota_user *after)
{
	return after ? after->hh.next : quota->users;
}

uid_t quota_user_uid(const struct quota_user *user)
{
	return user->uid;
}
