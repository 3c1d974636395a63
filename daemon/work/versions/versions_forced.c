/* Retired by force: leases that are left when a version's time is over are revoked, and the version is freed. */
#include "versions_internal.h"
#include "../../../base/clock.h"
#include "../../restart/keeping.h"
#include "leases.h"

#include <stdio.h>

#define REASON "an operator retired the version by force"

static void arm(struct work *work);

/* Leases for which there is no memory are tried again. */
static void revoke_all(struct work *work, struct version *version)
{
	struct error error;
	int r = 0;

	version->forced = true;
	while (version->leases && r == 0)
		r = revoked_add(work, version->leases, &error);
	version->force_due_ms = version->leases ? clock_steady_ms() + FORCE_RETRY_MS : 0;
	if (version->leases)
		log_error("%s@%s was to be freed by force and has %llu leases: %s (%s)",
			  model_name(version->model), version->tag, (unsigned long long)version->lease_count,
			  error.message, error.detail);
}

static void on_due(uv_timer_t *timer)
{
	struct work *work = timer->data;
	const uint64_t now = clock_steady_ms();
	struct version *version = NULL;

	while ((version = registry_next_version(work->ledger->registry, NULL, version))) {
		if (version->force_due_ms == 0 || version->force_due_ms > now)
			continue;
		log_info("%s@%s is freed by force: %llu leases are revoked", model_name(version->model),
			 version->tag, (unsigned long long)version->lease_count);
		revoke_all(work, version);
		freeing_begin(work, version);
	}
	keeping_save(work->keeping);
	revoked_tell(work, REASON, NULL);
	arm(work);
}

static uint64_t due_ms(const struct version *version)
{
	return version->force_due_ms;
}

static void arm(struct work *work)
{
	versions_arm(work, &work->force_timer, on_due, due_ms);
}

int versions_retire_by_force(struct work *work, struct version *version, uint64_t after_ms, struct error *error)
{
	int r = version_check_unpinned(version, error);

	if (r == 0)
		r = registry_retire(work->ledger->registry, version, error);
	if (r < 0 || version->freeing || version->forced)
		return r;
	version->force_at_ms = clock_wall_ms() + after_ms;
	version->force_due_ms = clock_steady_ms() + after_ms;
	if (after_ms == 0)
		revoke_all(work, version);
	freeing_begin(work, version);
	keeping_save(work->keeping);
	tell_retiring(work, version, &after_ms);
	revoked_tell(work, REASON, NULL);
	waiters_wake(work->clients, WAIT_READY, version);
	arm(work);
	return 0;
}

void force_now(struct work *work, struct version *version)
{
	version->force_at_ms = clock_wall_ms();
	revoke_all(work, version);
	freeing_begin(work, version);
	arm(work);
}

void versions_force_begin(struct work *work)
{
	const uint64_t now = clock_wall_ms();
	struct version *version = NULL;

	while ((version = registry_next_version(work->ledger->registry, NULL, version))) {
		if (version->force_at_ms > now)
			version->force_due_ms = clock_steady_ms() + (version->force_at_ms - now);
		else if (version->force_at_ms || version->forced)
			version->force_due_ms = clock_steady_ms();
		/* From the first request on nobody gets a lease of it again. */
		version->forced = version->forced || (version->force_at_ms && version->force_at_ms <= now);
	}
	arm(work);
}
