#include "region.h"

#include "../../base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *region_state_name(enum region_state state)
{
	static const char *const names[] = {
		[REGION_MAKING] = "making", [REGION_READY] = "ready", [REGION_ENDED] = "ended"};

	return names[state];
}

static int region_no_memory(struct error *error)
{
	return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
}

/* ---- finding ---- */

struct region *region_find(const struct region_table *table, const struct version_id *id)
{
	struct region *region = table->first;

	while (region && !version_id_equal(&region->id, id))
		region = region->next;
	return region;
}

struct region *region_find_name(const struct region_table *table, const char *name)
{
	struct region *found = NULL;

	for (struct region *region = table->first; region && name[0]; region = region->next) {
		if (strcmp(region->name, name) != 0)
			continue;
		found = region;
		if (region->state != REGION_ENDED)
			break;
	}
	return found;
}

struct region_user *region_find_user(const struct region_table *table, const struct version_id *use)
{
	for (const struct region *region = table->first; region; region = region->next) {
		for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
			struct region_user *user = region->users[slot];

			if (user && version_id_equal(&user->use, use))
				return user;
		}
	}
	return NULL;
}

/* ---- a region comes to be ---- */

int region_adopt(struct region_table *table, const struct region_wish *wish, const struct version_id *id,
		 struct region **ret_region, struct error *error)
{
	const struct region *other = wish->name ? region_find_name(table, wish->name) : NULL;
	struct region *region;

	if (other && other->state != REGION_ENDED)
		return error_set(error, -EEXIST, "give it another name", "the name \"%s\" is taken",
				 wish->name);
	if (table->count >= REGIONS_MAX)
		return error_set(error, -EDQUOT, "remove some: gpuwmctl regions says whose they are",
				 "there are all %d regions that there may be", REGIONS_MAX);
	if (region_find(table, id))
		return error_set(error, -EEXIST, NULL, "another region has its id");
	region = calloc(1, sizeof(*region));
	if (!region)
		return region_no_memory(error);
	region->id = *id;
	region->is = *wish;
	region->is.name = NULL;
	region->memory_fd = region->control_fd = -1;
	region->created_ms = clock_wall_ms();
	snprintf(region->name, sizeof(region->name), "%s", wish->name ? wish->name : "");
	*table->end = region;
	table->end = &region->next;
	table->count++;
	table->bytes += wish->memory_bytes;
	*ret_region = region;
	return 0;
}

int region_add(struct region_table *table, const struct region_wish *wish, struct region **ret_region,
	       struct error *error)
{
	struct version_id id;

	if (version_id_new(&id) < 0)
		return error_set(error, -EIO, NULL, "the kernel gave no random bytes for an id");
	return region_adopt(table, wish, &id, ret_region, error);
}

static void release_charges(struct region *region)
{
	region->memory_charge = shared_charge_drop(region->memory_charge);
	quota_release(&region->count_charge);
	quota_release(&region->fds_charge);
}

/* ---- shares ---- */

static bool is_paid_by(const struct region *region, uid_t uid)
{
	return region->count_charge.user && quota_user_uid(region->count_charge.user) == uid;
}

/* Memory that is being freed comes back by itself. */
static bool is_being_freed(const struct region *region)
{
	return region->state == REGION_ENDED && region_is_unused(region);
}

int region_check_share(const struct region_table *table, const struct region_wish *wish,
		       const struct quota *quota, struct error *error)
{
	const struct device *device = wish->device;
	char noun[DEVICE_BYTES_MAX + 32];
	struct share_table share = {
		.all = device->budget,
		.most = SHARE_NONE,
		.percent = wish->share,
		.in_bytes = true,
		.noun = noun,
		.remedy =
			"remove regions, or have an operator set share for regions of this name, in a section [model.N] of "
			"gpuwmd's configuration",
		.others = "versions and others' regions",
	};
	struct share_held held = {.operators = device->used - device->by_users, .others = device->by_users};

	if (wish->by_operator)
		return quota_check_operators(quota, QUOTA_REGIONS, 1, error);
	if (wish->memory_bytes > device->budget) /* no share gives that: the budget refuses it */
		return 0;
	snprintf(noun, sizeof(noun), "for regions on %s", device->id);
	for (const struct region *region = table->first; region; region = region->next) {
		if (region->is.device == device && is_paid_by(region, wish->uid) && !is_being_freed(region))
			held.own += region->is.memory_bytes;
	}
	held.others -= held.own < held.others ? held.own : held.others;
	return share_check(&share, &held, wish->uid, wish->memory_bytes, error);
}

/* ---- who pays for what has ended ---- */

/* Sets *ret_uid. Returns false if nobody but operators maps it. */
static bool find_payer(const struct region *region, uid_t *ret_uid)
{
	const uid_t pays = quota_user_uid(region->count_charge.user);
	bool found = false;

	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		const struct region_user *user = region->users[slot];

		if (!user || user->by_operator)
			continue;
		if (!found || user->uid == pays || (user->uid == region->is.uid && *ret_uid != pays))
			*ret_uid = user->uid;
		found = true;
	}
	return found;
}

static void repay(struct quota_charge *charge, const uid_t *uid)
{
	struct quota *quota = charge->quota;
	const enum quota_kind kind = charge->kind;
	const uint64_t amount = charge->amount;

	quota_release(charge);
	if (uid)
		quota_adopt(quota, *uid, kind, amount, charge, NULL);
}

void region_repay(struct region *region)
{
	uid_t uid;
	const uid_t *payer;

	if (region->state != REGION_ENDED || !region->count_charge.user || region_is_unused(region))
		return;
	payer = find_payer(region, &uid) ? &uid : NULL;
	if (payer && is_paid_by(region, uid))
		return;
	if (region->memory_charge)
		budget_repay(&region->memory_charge->charge, payer, NULL);
	repay(&region->fds_charge, payer);
	repay(&region->count_charge, payer);
}

#define MAPPERS_NAMED 3 /* so that an error's detail has room for the rest */

void region_name_mappers(const struct region_table *table, const struct device *device, char *text, size_t size)
{
	size_t used = strlen(text);
	unsigned named = 0;

	for (const struct region *region = table->first; region; region = region->next) {
		for (unsigned slot = 0; slot < REGION_USERS_MAX && region->state == REGION_ENDED; slot++) {
			const struct region_user *user = region->users[slot];

			if (!user || region->is.device != device || used >= size)
				continue;
			if (named++ == MAPPERS_NAMED) {
				snprintf(text + used, size - used, " and others");
				return;
			}
			used += (size_t)snprintf(text + used, size - used, "%s%s (pid %llu, uid %u)",
						 named == 1 ? ": " : ", ", user->command,
						 (unsigned long long)user->pid, (unsigned)user->uid);
		}
	}
}

/* ---- charges ---- */

/* The number of regions and of descriptors. */
static int region_charge_user(struct region *region, struct quota *quota, bool adopt, struct error *error)
{
	const uid_t uid = region->is.uid;
	int r = adopt ? quota_adopt(quota, uid, QUOTA_REGIONS, 1, &region->count_charge, error)
		      : quota_charge(quota, uid, QUOTA_REGIONS, &region->count_charge, error);

	if (r < 0)
		return r;
	return adopt ? quota_adopt(quota, uid, QUOTA_FDS, REGION_FDS, &region->fds_charge, error)
		     : quota_charge_amount(quota, uid, QUOTA_FDS, REGION_FDS, &region->fds_charge, error);
}

static int region_charge_memory(struct region *region, struct quota *quota, bool adopt, struct error *error)
{
	struct budget_charge charge = {0};
	int r = 0;

	if (adopt)
		budget_adopt(region->is.device, region->is.memory_bytes, &charge);
	else
		r = budget_charge(region->is.device, region->is.memory_bytes, &charge, error);
	if (r == 0 && !region->is.by_operator)
		r = adopt ? budget_adopt_user(&charge, quota, region->is.uid, error)
			  : budget_charge_user(&charge, quota, region->is.uid, error);
	if (r == 0)
		region->memory_charge = shared_charge_new(&charge);
	if (r == 0 && !region->memory_charge)
		r = region_no_memory(error);
	budget_release(&charge); /* what did not move */
	return r;
}

int region_charge(struct region *region, struct quota *quota, bool adopt, struct error *error)
{
	int r = region->is.by_operator ? 0 : region_charge_user(region, quota, adopt, error);

	if (r == 0)
		r = region_charge_memory(region, quota, adopt, error);
	if (r < 0)
		release_charges(region);
	return r;
}

bool region_quota_comes(const struct quota *quota, const struct region_wish *wish)
{
	const uint64_t needs[QUOTA_KINDS] = {
		[QUOTA_REGIONS] = 1,
		[QUOTA_FDS] = REGION_FDS + REGION_USER_FDS,
		[QUOTA_BYTES] = wish->memory_bytes,
	};

	return !wish->by_operator && quota_comes(quota, wish->uid, needs);
}

static void close_if_open(int fd)
{
	if (fd >= 0)
		close(fd);
}

void region_free(struct region_table *table, struct region *region)
{
	struct region **link = &table->first;

	while (*link != region)
		link = &(*link)->next;
	*link = region->next;
	if (!*link)
		table->end = link;
	table->count--;
	table->bytes -= region->is.memory_bytes;
	release_charges(region);
	close_if_open(region_drop_control(region));
	close_if_open(region->memory_fd);
	free(region);
}

void region_table_init(struct region_table *table)
{
	*table = (struct region_table){.end = &table->first};
}

void region_table_clear(struct region_table *table)
{
	while (table->first) {
		struct region *region = table->first;

		for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
			if (region->users[slot])
				region_user_free(table, region->users[slot]);
		}
		region_free(table, region);
	}
	region_table_init(table);
}

/* ---- its end ---- */

bool region_end(struct region *region, enum control_end end, unsigned by, const struct error *why)
{
	if (region->state == REGION_ENDED)
		return false;
	region->state = REGION_ENDED;
	region->end = end;
	region->ended_by = by;
	region->error = *why;
	return true;
}

void region_show_end(const struct region *region)
{
	if (region->control.head)
		control_ended(&region->control, region->end, region->ended_by);
}
