/* Retired by force: leases that are left when a version's time is over are revoked, and the version is freed. */
#include "versions_internal.h"
#include "../base/clock.h"
#include "../base/complaint.h"
#include "../restart/keeping.h"
#include "revoked.h"
#include "../../proto/methods.h"

#include <stdio.h>

#define REASON "an operator retired the version by force"

static void arm(struct server *server);

/* Leases for which there is no memory are tried again. */
static void revoke_all(struct server *server, struct version *version)
{
	struct error error;
	int r = 0;

	version->forced = true;
	while (version->leases && r == 0)
		r = revoked_add(server, version->leases, &error);
	version->force_due_ms = version->leases ? clock_steady_ms() + FORCE_RETRY_MS : 0;
	if (version->leases)
		log_error("%s@%s was to be freed by force and has %llu leases: %s (%s)",
			  model_name(version->model), version->tag, (unsigned long long)version->lease_count,
			  error.message, error.detail);
}

static void on_due(uv_timer_t *timer)
{
	struct server *server = timer->data;
	const uint64_t now = clock_steady_ms();
	struct version *version = NULL;

	while ((version = registry_next_version(server->ledger.registry, NULL, version))) {
		if (version->force_due_ms == 0 || version->force_due_ms > now)
			continue;
		log_info("%s@%s is freed by force: %llu leases are revoked", model_name(version->model),
			 version->tag, (unsigned long long)version->lease_count);
		revoke_all(server, version);
		freeing_begin(server, version);
	}
	keeping_save(server->keeping);
	revoked_tell(server, REASON, NULL);
	arm(server);
}

/* For the version whose time is over next. */
static void arm(struct server *server)
{
	struct version *version = NULL;
	uint64_t next = 0;

	while ((version = registry_next_version(server->ledger.registry, NULL, version))) {
		if (version->force_due_ms && (next == 0 || version->force_due_ms < next))
			next = version->force_due_ms;
	}
	uv_timer_stop(&server->force_timer);
	if (next == 0)
		return;
	uv_update_time(&server->loop);
	uv_timer_start(&server->force_timer, on_due, clock_left_ms(next), 0);
}

static void log_force(struct server *server, const struct version *version, uint64_t after_ms, uid_t by)
{
	complain(server->complaints, by, COMPLAINT_FORCED,
		 "uid %u retires %s@%s by force: %llu leases hold it, which are revoked in %llu ms",
		 (unsigned)by, model_name(version->model), version->tag,
		 (unsigned long long)version->lease_count, (unsigned long long)after_ms);
}

int versions_retire_by_force(struct server *server, struct version *version, uint64_t after_ms, uid_t by,
			     struct error *error)
{
	int r = version_check_unpinned(version, error);

	if (r == 0)
		r = registry_retire(server->ledger.registry, version, error);
	if (r < 0 || version->freeing || version->forced)
		return r;
	log_force(server, version, after_ms, by);
	version->force_at_ms = clock_wall_ms() + after_ms;
	version->force_due_ms = clock_steady_ms() + after_ms;
	if (after_ms == 0)
		revoke_all(server, version);
	freeing_begin(server, version);
	keeping_save(server->keeping);
	tell_retiring(server, version, &after_ms);
	revoked_tell(server, REASON, NULL);
	waiters_wake(server, WAIT_READY, version);
	arm(server);
	return 0;
}

void force_now(struct server *server, struct version *version)
{
	version->force_at_ms = clock_wall_ms();
	revoke_all(server, version);
	freeing_begin(server, version);
	arm(server);
}

void versions_force_begin(struct server *server)
{
	const uint64_t now = clock_wall_ms();
	struct version *version = NULL;

	while ((version = registry_next_version(server->ledger.registry, NULL, version))) {
		if (version->force_at_ms > now)
			version->force_due_ms = clock_steady_ms() + (version->force_at_ms - now);
		else if (version->force_at_ms || version->forced)
			version->force_due_ms = clock_steady_ms();
		/* From the first request on nobody gets a lease of it again. */
		version->forced = version->forced || (version->force_at_ms && version->force_at_ms <= now);
	}
	arm(server);
}
