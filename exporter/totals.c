#include "snapshot.h"

#include "../proto/tier_kind.h"

static void sums_add(json_t *sums, const char *key, uint64_t value)
{
	json_object_set_new(sums, key, json_integer((json_int_t)(member_number(sums, key) + value)));
}

/* How many of the items are in which state. NULL: gpuwmd did not answer. */
static json_t *states_count(const json_t *items)
{
	json_t *states = items ? json_object() : NULL;
	const json_t *item;
	size_t i;

	json_array_foreach(items, i, item)
		sums_add(states, member_text(item, "state"), 1);
	return states;
}

static json_t *workers_count(const json_t *clients)
{
	json_int_t count = 0;
	const json_t *client;
	size_t i;

	json_array_foreach(clients, i, client)
		count += json_array_size(json_object_get(client, "leases")) > 0;
	return clients ? json_integer(count) : NULL;
}

/* ---- by device ----------------------------------------------------------- */

const char *part_device(const json_t *version, const json_t *part)
{
	enum tier tier = ON_DEVICE;

	if (member_has(version, "tier") && tier_find(member_text(version, "tier"), &tier) < 0)
		return NULL;
	return tier_device(tier, member_text(part, "device"));
}

static json_t *devices_get(json_t *devices, const char *name)
{
	json_t *device = json_object_get(devices, name);

	if (!device) {
		device = json_object();
		json_object_set_new(devices, name, device);
	}
	return device;
}

/* A version counts once on each device, however many parts it has there. */
static void version_add(json_t *devices, const json_t *version, size_t number)
{
	const json_t *part;
	size_t i;

	json_array_foreach(json_object_get(version, "parts"), i, part) {
		const char *name = part_device(version, part);
		json_t *device = name ? devices_get(devices, name) : NULL;

		if (!device || member_number(part, "bytes") == 0)
			continue;
		if (member_number(device, "last") != number) {
			json_object_set_new(device, "last", json_integer((json_int_t)number));
			sums_add(device, "versions", 1);
		}
		sums_add(device, "bytes", member_number(part, "bytes"));
		sums_add(device, "shared_bytes", member_number(part, "shared_bytes"));
	}
}

static json_t *devices_sum(const struct snapshot *snapshot)
{
	json_t *devices = json_object(), *device;
	const json_t *item;
	const char *name;
	size_t i;

	json_array_foreach(json_object_get(snapshot->answers[ASK_LIST], "versions"), i, item) {
		if (!member_is(item, "state", "failed"))
			version_add(devices, item, i + 1);
	}
	json_array_foreach(json_object_get(snapshot->answers[ASK_LIST], "copies"), i, item)
		sums_add(devices_get(devices, member_text(item, "device")), "copies",
			 member_number(item, "bytes"));
	json_array_foreach(json_object_get(snapshot->answers[ASK_REGIONS], "regions"), i, item)
		sums_add(devices_get(devices, member_text(item, "device")), "regions",
			 member_number(item, "bytes"));
	json_object_foreach(devices, name, device)
		json_object_del(device, "last");
	return devices;
}

static json_t *shared_sum(const json_t *versions)
{
	json_int_t sum = 0;
	const json_t *version;
	size_t i;

	json_array_foreach(versions, i, version)
		sum += (json_int_t)member_number(version, "shared_bytes");
	return versions ? json_integer(sum) : NULL;
}

json_t *totals_make(const struct snapshot *snapshot)
{
	const json_t *versions = json_object_get(snapshot->answers[ASK_LIST], "versions");

	return json_pack("{s:o*, s:o*, s:o*, s:o*, s:o*}", "versions", states_count(versions), "jobs",
			 states_count(json_object_get(snapshot->answers[ASK_JOBS], "jobs")), "workers",
			 workers_count(json_object_get(snapshot->answers[ASK_CLIENTS], "clients")),
			 "shared_bytes", shared_sum(versions), "devices", devices_sum(snapshot));
}
