/* Versions whose GPU is lost. Their descriptors lead to memory that is gone; where a rank has a replica on another device, the
 * version goes on there. */
#include "versions_internal.h"
#include "../../restart/keeping.h"
#include "../loaders/loader.h"
#include "leases.h"

#include <stdio.h>

#define REASON "its GPU is lost, and an operator drained that"

static bool has_memory(const struct version *version)
{
	return version->state == VERSION_READY || version->state == VERSION_RETIRING;
}

bool version_is_on(const struct version *version, const struct device *device)
{
	for (uint32_t i = 0; i < version->replica_count; i++) {
		if (version->replicas[i].lies_on == device)
			return true;
	}
	return false;
}

/* ---- tainted ---- */

/* Its host copies become its memory. Returns false if it has none, or if somebody has it mapped, for example. */
static bool lives_on_host(struct work *work, struct version *version, const struct device *device)
{
	char reason[DEVICE_BYTES_MAX + 16];

	snprintf(reason, sizeof(reason), "%s is lost", device->id);
	return work->heal && version_is_on(version, device) && work->heal(work, version, reason);
}

/* True: it is another one now. The caller saves. */
static bool lose(struct work *work, struct version *version, struct device *device)
{
	struct error why;

	if (!has_memory(version) || version->freeing || lives_on_host(work, version, device) ||
	    !version_lose(version, device))
		return false;
	device_check_there(device, &why);
	version_taint(version, &why);
	for (uint32_t i = 0; i < version->replica_count; i++) { /* one event for each rank that was there */
		if (version->replicas[i].lies_on == device)
			tell_tainted(work, version, &version->replicas[i], &why);
	}
	log_warning("%s@%s is tainted (leases: %llu): %s", model_name(version->model), version->tag,
		    (unsigned long long)version->lease_count, why.message);
	return true;
}

void versions_fail_lost(struct work *work)
{
	struct publish *publish = publish_next(work->ledger->publishes, NULL), *next;
	struct error why;

	for (; publish; publish = next) {
		const struct version *version = publish->version;
		int r = 0;

		next = publish_next(work->ledger->publishes, publish);
		for (uint32_t i = 0; r == 0 && i < version->replica_count && !version->storing; i++)
			r = device_check_there(version->replicas[i].device, &why);
		if (r < 0)
			versions_fail(work, publish, &why, NULL);
	}
}

void versions_lose(struct work *work, struct device *device)
{
	struct version *version = NULL;

	while ((version = registry_next_version(work->ledger->registry, NULL, version)))
		lose(work, version, device);
	keeping_save(work->keeping);
}

void versions_lose_new(struct work *work, struct version *version)
{
	bool lost = false;

	for (uint32_t i = 0; i < version->replica_count; i++) {
		struct device *device = version->replicas[i].lies_on;

		if (device && device->lost.code)
			lost = lose(work, version, device) || lost;
	}
	if (lost)
		keeping_save(work->keeping);
}

/* ---- drained ---- */

static const struct alias *alias_of(struct work *work, const struct version *version)
{
	const char *model = model_name(version->model);
	const struct alias *alias = NULL;
	const char *in;

	while ((alias = registry_next_alias(work->ledger->registry, model, alias, &in))) {
		if (alias->version == version && strcmp(alias->name, ALIAS_PREVIOUS) != 0)
			return alias;
	}
	return NULL;
}

static void remove_aliases(struct work *work, struct version *version)
{
	const char *model = model_name(version->model);
	char name[NAME_BYTES_MAX + 1];
	const struct alias *alias;
	struct swap_result result;

	while ((alias = alias_of(work, version))) {
		snprintf(name, sizeof(name), "%s", alias->name);
		if (registry_swap(work->ledger->registry, &(struct alias_move){model, name, NULL, NULL},
				  &result, NULL) < 0)
			return;
		tell_swapped(work, model, name, &result);
	}
}

static void let_go(struct work *work, struct version *version)
{
	const uint64_t now = 0;
	bool before = version->state == VERSION_RETIRING;

	remove_aliases(work, version);
	if (registry_retire(work->ledger->registry, version, NULL) < 0)
		return;
	if (!before)
		tell_retiring(work, version, &now);
	force_now(work, version);
	waiters_wake(work->clients, WAIT_READY, version);
}

static bool is_lost_with(const struct version *version, const struct device *device)
{
	for (uint32_t i = 0; i < version->replica_count; i++) {
		if (version->replicas[i].device == device && version->replicas[i].lost)
			return true;
	}
	return false;
}

void versions_drain_lost(struct work *work, const struct device *device)
{
	struct version *version = NULL;

	while ((version = registry_next_version(work->ledger->registry, NULL, version))) {
		if (has_memory(version) && !version->freeing && is_lost_with(version, device) &&
		    !version_is_left(version))
			let_go(work, version);
	}
	keeping_save(work->keeping);
	revoked_tell(work, REASON, NULL);
}
