#include "quota.h"
#include "hash.h"
#include "../../base/bytes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IN_BYTES_THINGS false
#define IN_BYTES_BYTES true
#define QUOTA_ROW(kind, name_, unit, all, most, noun_, help)                                                   \
	[QUOTA_##kind] = {                                                                                     \
		.name = (name_), .key = name_ "_per_uid", .noun = (noun_), .in_bytes = IN_BYTES_##unit},
const struct quota_row quota_rows[QUOTA_KINDS] = {QUOTAS(QUOTA_ROW)};

#define QUOTA_DEFAULT(kind, name, unit, all, most, noun, help) [QUOTA_##kind] = (most),
#define QUOTA_ALL(kind, name, unit, all, most, noun, help) [QUOTA_##kind] = (all),
const struct quota_limits quota_defaults = {.per_uid = {QUOTAS(QUOTA_DEFAULT)}, .all = {QUOTAS(QUOTA_ALL)}};

struct quota_user {
	uid_t uid;
	uint64_t used[QUOTA_KINDS], charges;
	UT_hash_handle hh;
};

struct quota {
	struct quota_limits limits;
	struct quota_user *users;
	uint64_t held[QUOTA_KINDS]; /* by all users */
	quota_taken_fn *taken; /* may be NULL */
	void *taken_data;
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

void quota_set_all(struct quota *quota, enum quota_kind kind, uint64_t all)
{
	quota->limits.all[kind] = all;
}

void quota_set_taken(struct quota *quota, quota_taken_fn *taken, void *data)
{
	quota->taken = taken;
	quota->taken_data = data;
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

/* ---- shares ---- */

static struct share_table table_of(const struct quota_limits *limits, enum quota_kind kind)
{
	return (struct share_table){
		.all = limits->all[kind],
		.most = limits->per_uid[kind],
		.in_bytes = quota_rows[kind].in_bytes,
		.noun = quota_rows[kind].noun,
		.key = quota_rows[kind].key,
	};
}

uint64_t quota_alone(const struct quota_limits *limits, enum quota_kind kind)
{
	const struct share_table table = table_of(limits, kind);

	return share_alone(&table);
}

/* used: by the user. What a publisher was promised may not be taken yet, so that less is taken than users are charged with. */
static struct share_held held_of(const struct quota *quota, enum quota_kind kind, uint64_t used)
{
	const uint64_t taken = quota->taken ? quota->taken(quota->taken_data, kind) : 0;

	return (struct share_held){
		.own = used,
		.operators = taken > quota->held[kind] ? taken - quota->held[kind] : 0,
		.others = quota->held[kind] > used ? quota->held[kind] - used : 0,
	};
}

static bool fits_without(const struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t going,
			 uint64_t more)
{
	const struct share_table table = table_of(&quota->limits, kind);
	struct share_held held = held_of(quota, kind, quota_used(quota, uid, kind));

	held.own = held.own > going ? held.own - going : 0;
	return share_fits(&table, &held, more);
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
		if (fits_without(quota, uid, kind, 0, needs[kind]))
			continue;
		lacks = true;
		if (!fits_without(quota, uid, kind, coming.amounts[kind], needs[kind]))
			return false;
	}
	return lacks;
}

/* ---- charges ---- */

/* Says in the detail how much of the quota comes back by itself, if some does. */
static void tell_coming(const struct quota *quota, uid_t uid, enum quota_kind kind, char *detail, size_t size)
{
	const struct share_table table = table_of(&quota->limits, kind);
	const struct quota_coming coming = coming_for(quota, uid);
	char amount[SHARE_FIGURE], when[64] = "being freed";
	size_t used = strlen(detail);

	if (coming.amounts[kind] == 0)
		return;
	if (coming.in_ms > 0)
		snprintf(when, sizeof(when), "freed %llu ms from now", (unsigned long long)coming.in_ms);
	snprintf(detail + used, size - used,
		 ", or wait: %llu version%s of uid %u %s %s, which gives %s %s back%s",
		 (unsigned long long)coming.versions, coming.versions == 1 ? "" : "s", (unsigned)uid,
		 coming.versions == 1 ? "is" : "are", when, share_figure(&table, coming.amounts[kind], amount),
		 quota_rows[kind].noun,
		 coming.in_ms > 0 ? " (in the grace time after its start gpuwmd frees nothing, so that "
				    "workers can take their leases again)"
				  : "");
}

static int check_limit(const struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t more,
		       struct error *error)
{
	const struct share_table table = table_of(&quota->limits, kind);
	const struct share_held held = held_of(quota, kind, quota_used(quota, uid, kind));
	char detail[TEXT_BYTES_MAX + 1];
	int r = share_check(&table, &held, uid, more, error);

	if (r < 0 && error) {
		snprintf(detail, sizeof(detail), "%s", error->detail);
		tell_coming(quota, uid, kind, detail, sizeof(detail));
		snprintf(error->detail, sizeof(error->detail), "%s", detail);
	}
	return r;
}

static const struct quota_user *most_of(const struct quota *quota, enum quota_kind kind)
{
	const struct quota_user *most = NULL;

	for (const struct quota_user *user = quota->users; user; user = user->hh.next) {
		if (user->used[kind] > (most ? most->used[kind] : 0))
			most = user;
	}
	return most;
}

int quota_check_operators(const struct quota *quota, enum quota_kind kind, uint64_t more, struct error *error)
{
	const struct share_table table = table_of(&quota->limits, kind);
	const struct share_held held = held_of(quota, kind, 0);
	const struct quota_user *most = most_of(quota, kind);
	char all[SHARE_FIGURE], asked[SHARE_FIGURE], own[SHARE_FIGURE], others[SHARE_FIGURE],
		first[SHARE_FIGURE];
	char has[64] = "", remedy[TEXT_BYTES_MAX + 1] = "retire or remove some";

	if (table.all == 0 || held.operators + held.others + more <= table.all)
		return 0;
	if (most) {
		snprintf(has, sizeof(has), ", uid %u most of them: %s", (unsigned)most->uid,
			 share_figure(&table, most->used[kind], first));
		snprintf(remedy, sizeof(remedy),
			 "retire or remove some: gpuwmctl retire --uid %u retires all versions of this user",
			 (unsigned)most->uid);
	}
	if (kind == QUOTA_FDS && table.all < STORE_FDS_MAX)
		strncat(remedy, "; or " STORE_FDS_REMEDY, sizeof(remedy) - strlen(remedy) - 1);
	return error_set(
		error, -EDQUOT, remedy, "%s more %s do not fit: of %s, operators hold %s and users %s%s",
		share_figure(&table, more, asked), table.noun, share_figure(&table, table.all, all),
		share_figure(&table, held.operators, own), share_figure(&table, held.others, others), has);
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
	quota->held[kind] += amount;
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
	charge->quota->held[charge->kind] += more;
	charge->amount += more;
	return 0;
}

void quota_shrink(struct quota_charge *charge, uint64_t amount)
{
	if (!charge->user || charge->amount <= amount)
		return;
	charge->user->used[charge->kind] -= charge->amount - amount;
	charge->quota->held[charge->kind] -= charge->amount - amount;
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
