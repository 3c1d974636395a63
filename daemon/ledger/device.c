#include "device.h"
#include "../../base/bytes.h"
#include "../../proto/names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int device_table_budget(struct device_table *table, const char *id, uint64_t bytes, unsigned percent)
{
	size_t i = 0;

	if (percent > 100 || (strcmp(id, "*") != 0 && device_wrong(id)))
		return -EINVAL;
	while (i < table->budget_count && strcmp(table->budgets[i].id, id) != 0)
		i++;
	if (i == DEVICES_MAX)
		return -ENOSPC;
	if (i == table->budget_count)
		table->budget_count++;
	snprintf(table->budgets[i].id, sizeof(table->budgets[i].id), "%s", id);
	table->budgets[i].bytes = bytes;
	table->budgets[i].percent = percent;
	return 0;
}

static uint64_t percent_of(uint64_t total, unsigned percent)
{
	return total / 100 * percent + total % 100 * percent / 100;
}

static uint64_t budget_of(const struct device_table *table, const struct device *device)
{
	const size_t none = table->budget_count;
	size_t found = none;

	for (size_t i = 0; i < table->budget_count; i++) {
		if (strcmp(table->budgets[i].id, device->id) == 0) {
			found = i;
			break;
		}
		if (device->kind->is_gpu && strcmp(table->budgets[i].id, "*") == 0)
			found = i;
	}
	if (found == none)
		return percent_of(device->total, device->kind->budget_percent);
	if (table->budgets[found].bytes > 0)
		return table->budgets[found].bytes;
	return percent_of(device->total, table->budgets[found].percent);
}

void device_table_rebudget(struct device_table *table)
{
	for (size_t i = 0; i < table->count; i++)
		table->devices[i]->budget = budget_of(table, table->devices[i]);
}

static void refresh(const struct device_table *table, struct device *device, const struct device *report,
		    uint64_t now_ms)
{
	memcpy(device->name, report->name, sizeof(device->name));
	device->name[sizeof(device->name) - 1] = '\0';
	device->total = report->total;
	device->context = report->context;
	device->free = report->free;
	device->free_at_ms = now_ms;
	device->budget = budget_of(table, device); /* what a restart brought may be of a larger device */
}

int device_table_report(struct device_table *table, const struct device *report, uint64_t now_ms)
{
	struct device *device;

	if (device_wrong(report->id))
		return -EINVAL;
	device = device_find(table, report->id);
	if (device) {
		refresh(table, device, report, now_ms);
		return 0;
	}
	if (table->count == DEVICES_MAX)
		return -ENOSPC;
	device = calloc(1, sizeof(*device));
	if (!device)
		return -ENOMEM;
	memcpy(device->id, report->id, sizeof(device->id));
	device->kind = report->kind;
	device->granularity = report->granularity;
	refresh(table, device, report, now_ms);
	table->devices[table->count++] = device;
	return 0;
}

struct device *device_find(const struct device_table *table, const char *id)
{
	for (size_t i = 0; i < table->count; i++) {
		if (strcmp(table->devices[i]->id, id) == 0)
			return table->devices[i];
	}
	return NULL;
}

int device_check_there(const struct device *device, struct error *error)
{
	char remedy[DEVICE_BYTES_MAX + 160];

	if (!device->lost.code)
		return 0;
	snprintf(
		remedy, sizeof(remedy),
		"gpuwmctl drain --device %s lets go of what lay there; then reset or replace it: gpuwmd uses it "
		"again by itself when a loader can",
		device->id);
	return error_set(error, -ENODEV, remedy, "%s is lost: %.800s", device->id, device->lost.message);
}

uint32_t device_table_known(const struct device_table *table, struct device_known ret[DEVICES_MAX])
{
	for (size_t i = 0; i < table->count; i++)
		ret[i] = (struct device_known){table->devices[i]->id, table->devices[i]->lost.code};
	return (uint32_t)table->count;
}

void device_table_clear(struct device_table *table)
{
	for (size_t i = 0; i < table->count; i++)
		free(table->devices[i]);
	memset(table, 0, sizeof(*table));
}

/* More may be adopted than a budget that has become smaller. */
static uint64_t left_of(const struct device *device, uint64_t used)
{
	return used < device->budget ? device->budget - used : 0;
}

uint64_t budget_left(const struct device *device)
{
	return left_of(device, device->used - device->contexts);
}

bool budget_is_exceeded(const struct device *device)
{
	return device->used - device->contexts > device->budget;
}

/* what: " asked for" */
static int no_room(const struct device *device, uint64_t bytes, const char *what, uint64_t left,
		   struct error *error)
{
	char asked[BYTES_TEXT], rest[BYTES_TEXT], budget[BYTES_TEXT], really[BYTES_TEXT], used[BYTES_TEXT];
	char over[BYTES_TEXT + 16] = "", detail[224];

	/* After a restart no loader has looked yet. */
	if (device->free_at_ms == 0)
		strcpy(really, "an unknown part");
	else
		bytes_format(device->free, really);
	if (budget_is_exceeded(device))
		snprintf(over, sizeof(over), ", with %s used", bytes_format(device->used, used));
	snprintf(detail, sizeof(detail),
		 "retire or demote a version, or raise [budget] %s in the configuration%s", device->id,
		 over[0] ? "; for a budget below what is used nothing is evicted" : "");
	return error_set(error, -ENOSPC, detail,
			 "no room on %s: %s%s, %s of the budget of %s left%s, %s really free", device->id,
			 bytes_format(bytes, asked), what, bytes_format(left, rest),
			 bytes_format(device->budget, budget), over, really);
}

static void charge(struct device *device, uint64_t bytes, bool context, struct budget_charge *ret)
{
	device->used += bytes;
	device->contexts += context ? bytes : 0;
	*ret = (struct budget_charge){.device = device, .bytes = bytes, .context = context};
}

int budget_check(const struct device *device, uint64_t bytes, struct error *error)
{
	uint64_t left = left_of(device, device->used);
	char contexts[BYTES_TEXT], what[96] = " asked for";

	if (bytes <= left)
		return 0;
	if (device->contexts)
		snprintf(what, sizeof(what), " asked for beside %s of CUDA contexts of running jobs",
			 bytes_format(device->contexts, contexts));
	return no_room(device, bytes, what, left, error);
}

int budget_charge(struct device *device, uint64_t bytes, struct budget_charge *ret, struct error *error)
{
	int r = budget_check(device, bytes, error);

	if (r == 0)
		charge(device, bytes, false, ret);
	return r;
}

/* ---- users ---- */

static uint64_t users_share(const struct device *device)
{
	return device->budget - share_reserved(device->budget);
}

uint64_t budget_left_for_users(const struct device *device)
{
	const uint64_t share = users_share(device);

	return device->by_users < share ? share - device->by_users : 0;
}

int budget_check_users(const struct device *device, uint64_t bytes, struct error *error)
{
	char asked[BYTES_TEXT], share[BYTES_TEXT], budget[BYTES_TEXT], held[BYTES_TEXT];
	char remedy[DEVICE_BYTES_MAX + 128];

	if (bytes <= budget_left_for_users(device))
		return 0;
	snprintf(remedy, sizeof(remedy),
		 "retire, demote or remove something of users, or raise [budget] %s in the configuration",
		 device->id);
	return error_set(
		error, -ENOSPC, remedy,
		"no room on %s: %s asked for, and of the budget of %s users may have %s, since an eighth is kept "
		"for operators; users have %s",
		device->id, bytes_format(bytes, asked), bytes_format(device->budget, budget),
		bytes_format(users_share(device), share), bytes_format(device->by_users, held));
}

int budget_charge_user(struct budget_charge *charge, struct quota *quota, uid_t uid, struct error *error)
{
	int r = budget_check_users(charge->device, charge->bytes, error);

	if (r == 0)
		r = quota_charge_amount(quota, uid, QUOTA_BYTES, charge->bytes, &charge->quota, error);
	if (r == 0)
		charge->device->by_users += charge->bytes;
	return r;
}

int budget_adopt_user(struct budget_charge *charge, struct quota *quota, uid_t uid, struct error *error)
{
	int r = quota_adopt(quota, uid, QUOTA_BYTES, charge->bytes, &charge->quota, error);

	if (r == 0)
		charge->device->by_users += charge->bytes;
	return r;
}

void budget_move_user(struct budget_charge *from, struct budget_charge *to)
{
	if (!from->quota.user)
		return;
	from->device->by_users -= from->bytes;
	to->device->by_users += to->bytes;
	to->quota = from->quota;
	from->quota = (struct quota_charge){0};
}

int budget_repay(struct budget_charge *charge, const uid_t *uid, struct error *error)
{
	struct quota *quota = charge->quota.quota;

	if (!charge->quota.user)
		return 0;
	charge->device->by_users -= charge->bytes;
	quota_release(&charge->quota);
	return uid ? budget_adopt_user(charge, quota, *uid, error) : 0;
}

/* ---- contexts ---- */

int budget_charge_context(struct device *device, struct budget_charge *ret, struct error *error)
{
	int r = budget_check_context(device, error);

	if (r == 0)
		charge(device, device->context, true, ret);
	return r;
}

void budget_force_context(struct device *device, struct budget_charge *ret)
{
	charge(device, device->context, true, ret);
}

void budget_keep_context(struct budget_charge *charge)
{
	if (charge->context)
		charge->device->contexts -= charge->bytes;
	charge->context = false;
}

int budget_check_context(const struct device *device, struct error *error)
{
	if (device->context <= left_of(device, device->used))
		return 0;
	if (device->context <= budget_left(device))
		return -EAGAIN;
	return no_room(device, device->context, " needed for a CUDA context to load or check there",
		       budget_left(device), error);
}

int budget_check_with_context(const struct device *device, uint64_t bytes, struct error *error)
{
	uint64_t left = budget_left(device), sum;
	char context[BYTES_TEXT], what[96] = " asked for";

	if (!__builtin_add_overflow(bytes, device->context, &sum) && sum <= left)
		return 0;
	if (device->context)
		snprintf(what, sizeof(what), " asked for and %s for a CUDA context while it is checked",
			 bytes_format(device->context, context));
	return no_room(device, bytes, what, left, error);
}

void budget_adopt(struct device *device, uint64_t bytes, struct budget_charge *ret)
{
	charge(device, bytes, false, ret);
}

void budget_shrink(struct budget_charge *charge, uint64_t bytes)
{
	if (charge->bytes <= bytes)
		return;
	charge->device->used -= charge->bytes - bytes;
	if (charge->context)
		charge->device->contexts -= charge->bytes - bytes;
	if (charge->quota.user)
		charge->device->by_users -= charge->bytes - bytes;
	quota_shrink(&charge->quota, bytes);
	charge->bytes = bytes;
}

void budget_split(struct budget_charge *charge, uint64_t bytes, struct budget_charge *ret)
{
	*ret = (struct budget_charge){.device = charge->device, .bytes = bytes, .context = charge->context};
	charge->bytes -= bytes;
	quota_split(&charge->quota, bytes, &ret->quota);
}

void budget_release(struct budget_charge *charge)
{
	budget_shrink(charge, 0);
	quota_release(&charge->quota);
	charge->device = NULL;
}
