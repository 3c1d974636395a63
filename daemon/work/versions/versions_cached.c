/* Cached versions: gpuwmd retires one when its time is over, or when enough newer ones of its model are ready. */
#include "versions_internal.h"
#include "../../ledger/companion.h"
#include "../../../base/clock.h"

static void arm(struct work *work);

/* False: an alias that a user gave it keeps it. */
static bool retire(struct work *work, struct version *version, const char *why)
{
	struct error error;

	if (versions_retire(work, version, &error) < 0)
		return false;
	version->expire_due_ms = 0;
	log_info("%s@%s is retired: %s", model_name(version->model), version->tag, why);
	return true;
}

static void on_due(uv_timer_t *timer)
{
	struct work *work = timer->data;
	const uint64_t now = clock_steady_ms();
	struct version *version = NULL;

	while ((version = registry_next_version(work->ledger->registry, NULL, version))) {
		if (version->expire_due_ms == 0 || version->expire_due_ms > now)
			continue;
		if (version->state != VERSION_READY)
			version->expire_due_ms = 0;
		else if (!retire(work, version,
				 companion_is_left(version) ? "the version that it belongs to is freed"
							    : "its time in the cache is over"))
			version->expire_due_ms = now + CACHE_LOOK_AGAIN_MS;
	}
	arm(work);
}

static uint64_t due_ms(const struct version *version)
{
	return version->expire_due_ms;
}

static void arm(struct work *work)
{
	versions_arm(work, &work->cache_timer, on_due, due_ms);
}

static void set_end(struct version *version, uint64_t in_ms)
{
	version->expire_at_ms = clock_wall_ms() + in_ms;
	version->expire_due_ms = clock_steady_ms() + in_ms;
}

void cached_set_time(struct version *version)
{
	if (companion_is_left(version)) /* what it goes with was freed while it was made */
		set_end(version, 0);
	else if (version->cache.ttl_ms)
		set_end(version, version->cache.ttl_ms);
}

void companions_settle(struct work *work)
{
	struct version *version = NULL;

	if (!work_is_due(work, LATER_COMPANIONS))
		return;
	work_done(work, LATER_COMPANIONS);
	while ((version = registry_next_version(work->ledger->registry, NULL, version))) {
		if (version->state == VERSION_READY && companion_is_left(version))
			set_end(version, 0);
	}
	arm(work);
}

static bool is_beside(const struct version *other, const struct version *version)
{
	return other->cache.cached && !version_is_companion(other) && other->state == VERSION_READY &&
	       other->owner == version->owner && other->by_operator == version->by_operator;
}

/* A publisher may retire only versions of the same user, and operators only theirs: see is_beside. */
static void keep_last(struct work *work, struct version *version)
{
	struct version *other = version->cache.keep_last > 0 ? version : NULL;
	uint32_t kept = 0;

	for (; other; other = other->previous_in_model) {
		if (is_beside(other, version) && kept++ >= version->cache.keep_last)
			retire(work, other, "newer ones of its model take its place in the cache");
	}
}

void cached_ready(struct work *work, struct version *version)
{
	keep_last(work, version);
	if (version->expire_due_ms)
		arm(work);
}

void versions_cache_begin(struct work *work)
{
	const uint64_t now = clock_wall_ms();
	struct version *version = NULL;

	while ((version = registry_next_version(work->ledger->registry, NULL, version))) {
		if (companion_is_left(version))
			set_end(version, 0);
		const uint64_t end = version->expire_at_ms;
		/* Never more than its whole time: the clock may have been set back since it began. */
		const uint64_t since = version->ready_ms > now ? version->ready_ms : now;

		if (end)
			version->expire_due_ms = clock_steady_ms() + (since < end ? end - since : 0);
	}
	arm(work);
}
