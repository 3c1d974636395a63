#include "host_copies.h"

#include "../../clients/access.h"
#include "../../restart/keeping.h"
#include "room.h"
#include "../jobs/verify.h"
#include "tiers_internal.h"

#include <errno.h>

/* Host copies leave this part of the budget of host, and of the fd store, to others, who so need not wait until a copy is closed. */
#define HOST_COPIES_LEAVE 8 /* one eighth, as users leave to operators: base/share.h */

/* ---- looking ---- */

bool host_copies_keep(const struct work *work, const struct version *version)
{
	const struct rule *rule = access_rule(work->clients, version->model);

	return !work->draining && version->state == VERSION_READY &&
	       !(rule && rule->tiers.host_copy == HOST_COPY_NO);
}

static bool has_copies(const struct work *work)
{
	return registry_counts(work->ledger->registry).host_copies > 0;
}

static bool may_go(const struct version *version)
{
	return version->replica_count > 0 && !version->freeing && !version->move &&
	       version_host_copy_bytes(version) > 0;
}

/* Each segment counts with the first that holds it. */
static uint64_t bytes_of(const struct version *version, const struct device *device)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < version->replica_count; i++) {
		const struct replica *part = &version->replicas[i];

		for (uint32_t k = 0; part->spares_on == device && k < part->spare_count; k++) {
			const struct segment *segment = part->spares[k].segment;

			if (segment->holds == &part->spares[k] && segment_is_spare(segment))
				bytes += segment->charge.bytes;
		}
	}
	return bytes;
}

uint64_t host_copies_bytes(const struct work *work, const struct device *device)
{
	struct version *version = NULL;
	uint64_t bytes = 0;

	while (has_copies(work) && (version = registry_next_version(work->ledger->registry, NULL, version))) {
		if (may_go(version))
			bytes += bytes_of(version, device);
	}
	return bytes;
}

static struct version *oldest_copy(const struct work *work)
{
	struct version *version = NULL, *oldest = NULL;

	while (has_copies(work) && (version = registry_next_version(work->ledger->registry, NULL, version))) {
		if (may_go(version) && (!oldest || version->resident_ms < oldest->resident_ms))
			oldest = version;
	}
	return oldest;
}

/* ---- dropping ---- */

/* Nobody reads them any more. */
static void cancel_verifies(struct work *work, const struct version *version)
{
	struct job *job = work->jobs.first, *next;
	struct error reason;

	error_set(&reason, -ECANCELED, "verify it again, if it has another one", "the host copy has made room");
	for (; job; job = next) {
		const struct verify_job *verify = verify_job_of(job);

		next = job->next;
		if (verify && verify->of_copy && job->reads == version)
			job_cancel(work, job, &reason);
	}
}

bool host_copy_drop(struct work *work, struct version *version)
{
	struct tier_move *leaves;
	uint64_t fds = 0;

	if (version_host_copy_bytes(version) == 0)
		return true;
	for (uint32_t i = 0; i < version->replica_count; i++)
		fds += version->replicas[i].spare_count;
	leaves = move_new(work, version, version->tier, NULL);
	if (!leaves)
		return false;
	leaves->removal = keeping_stores(work->keeping) ? keeping_batch_new(work->keeping, fds) : NULL;
	if (keeping_stores(work->keeping) && !leaves->removal) {
		move_free(leaves);
		return false;
	}
	cancel_verifies(work, version);
	version_take_host_copy(version, leaves->memory);
	keeping_save(work->keeping);
	move_leave(leaves);
	return true;
}

static uint64_t lacking(const struct work *work, const struct device *device, uint64_t bytes)
{
	const uint64_t used = device->used - room_being_freed(work, device);
	const uint64_t left = device->budget > used ? device->budget - used : 0;

	return bytes > left ? bytes - left : 0;
}

void host_copies_drop_for(struct work *work, const struct device *device, uint64_t bytes)
{
	struct version *oldest;

	while (host_copies_bytes(work, device) > 0 && lacking(work, device, bytes) > 0) {
		oldest = oldest_copy(work);
		if (!oldest || !host_copy_drop(work, oldest))
			return;
	}
}

bool host_copies_give_way(struct work *work, const struct device *device, uint64_t bytes)
{
	const uint64_t lacks = lacking(work, device, bytes);

	if (lacks > host_copies_bytes(work, device))
		return false;
	host_copies_drop_for(work, device, bytes);
	return lacking(work, device, bytes) == 0 && room_being_freed(work, device) > 0;
}

/* ---- room ---- */

static bool store_is_short(const struct work *work, uint64_t more)
{
	const struct registry *registry = work->ledger->registry;
	const uint64_t most = registry_fds_max(registry);

	return registry_fds(registry) + more > most - most / HOST_COPIES_LEAVE;
}

bool host_copies_fit(const struct work *work, uint64_t bytes, uint64_t fds)
{
	const struct device *host = device_find(&work->ledger->devices, DEVICE_HOST);

	return host && budget_left(host) >= bytes + host->budget / HOST_COPIES_LEAVE &&
	       !store_is_short(work, fds);
}

/* ---- before the loop sleeps ---- */

static bool is_damaged(const struct version *version)
{
	for (uint32_t i = 0; i < version->replica_count; i++) {
		const struct replica *part = &version->replicas[i];

		for (uint32_t k = 0; k < part->spare_count; k++) {
			if (part->spares[k].segment->damaged)
				return true;
		}
	}
	return false;
}

static void drop_all_wrong(struct work *work)
{
	struct version *version = NULL;

	while ((version = registry_next_version(work->ledger->registry, NULL, version))) {
		if (may_go(version) &&
		    (!version_is_resident(version) || !host_copies_keep(work, version) || is_damaged(version)))
			host_copy_drop(work, version);
	}
}

void host_copies_settle(struct work *work)
{
	const struct device *host = device_find(&work->ledger->devices, DEVICE_HOST);
	struct version *oldest;

	if (!has_copies(work) || work->net->stopping)
		return;
	if (work_is_due(work, LATER_HOST_COPIES))
		drop_all_wrong(work);
	work_done(work, LATER_HOST_COPIES);
	if (host && lacking(work, host, host->budget / HOST_COPIES_LEAVE) > 0)
		host_copies_drop_for(work, host, host->budget / HOST_COPIES_LEAVE);
	/* What leaves the store is counted there until it has: one at a time. */
	oldest = store_is_short(work, 0) ? oldest_copy(work) : NULL;
	if (oldest)
		host_copy_drop(work, oldest);
}
