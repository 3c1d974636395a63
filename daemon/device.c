#include "device.h"
#include "bytes.h"
#include "../proto/names.h"

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
		if (device->is_cuda && strcmp(table->budgets[i].id, "*") == 0)
			found = i;
	}
	if (found == none)
		return percent_of(device->total, device->is_cuda ? BUDGET_PERCENT_CUDA : BUDGET_PERCENT_HOST);
	if (table->budgets[found].bytes > 0)
		return table->budgets[found].bytes;
	return percent_of(device->total, table->budgets[found].percent);
}

void device_table_rebudget(struct device_table *table)
{
	for (size_t i = 0; i < table->count; i++)
		table->devices[i]->budget = budget_of(table, table->devices[i]);
}

static void refresh(struct device *device, const struct device *report, uint64_t now_ms)
{
	memcpy(device->name, report->name, sizeof(device->name));
	device->name[sizeof(device->name) - 1] = '\0';
	device->total = report->total;
	device->free = report->free;
	device->free_at_ms = now_ms;
}

int device_table_report(struct device_table *table, const struct device *report, uint64_t now_ms)
{
	struct device *device;

	if (device_wrong(report->id))
		return -EINVAL;
	device = device_find(table, report->id);
	if (device) {
		refresh(device, report, now_ms);
		return 0;
	}
	if (table->count == DEVICES_MAX)
		return -ENOSPC;
	device = calloc(1, sizeof(*device));
	if (!device)
		return -ENOMEM;
	memcpy(device->id, report->id, sizeof(device->id));
	device->is_cuda = report->is_cuda;
	device->granularity = report->granularity;
	refresh(device, report, now_ms);
	device->budget = budget_of(table, device);
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

void device_table_clear(struct device_table *table)
{
	for (size_t i = 0; i < table->count; i++)
		free(table->devices[i]);
	memset(table, 0, sizeof(*table));
}

static int no_room(const struct device *device, uint64_t bytes, uint64_t left, struct error *error)
{
	char asked[BYTES_TEXT], rest[BYTES_TEXT], budget[BYTES_TEXT], really[BYTES_TEXT];
	char detail[128];

	/* After a restart no loader has looked yet. */
	if (device->free_at_ms == 0)
		strcpy(really, "an unknown part");
	else
		bytes_format(device->free, really);
	snprintf(detail, sizeof(detail), "retire a version, or raise [budget] %s in the configuration",
		 device->id);
	return error_set(error, -ENOSPC, detail,
			 "no room on %s: %s asked for, %s of the budget of %s left, %s really free", device->id,
			 bytes_format(bytes, asked), bytes_format(left, rest),
			 bytes_format(device->budget, budget), really);
}

int budget_charge(struct device *device, uint64_t bytes, struct budget_charge *ret, struct error *error)
{
	/* More may be adopted than a budget that has become smaller. */
	uint64_t left = device->used < device->budget ? device->budget - device->used : 0;

	if (bytes > left)
		return no_room(device, bytes, left, error);
	device->used += bytes;
	*ret = (struct budget_charge){.device = device, .bytes = bytes};
	return 0;
}

void budget_adopt(struct device *device, uint64_t bytes, struct budget_charge *ret)
{
	device->used += bytes;
	*ret = (struct budget_charge){.device = device, .bytes = bytes};
}

void budget_shrink(struct budget_charge *charge, uint64_t bytes)
{
	if (charge->bytes <= bytes)
		return;
	charge->device->used -= charge->bytes - bytes;
	charge->bytes = bytes;
}

void budget_release(struct budget_charge *charge)
{
	budget_shrink(charge, 0);
	charge->device = NULL;
}
