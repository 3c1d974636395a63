/* Failed versions: they hold nothing, and are listed with their reasons until somebody removes them, their time is over, or
 * something else takes their place. */
#include "versions_internal.h"
#include "../../../base/clock.h"

#include <errno.h>

/* 0: it stays until something else removes it. */
static uint64_t due_ms(const struct work *work, const struct version *version)
{
	uint64_t keep_ms = work->config->failed_keep_s * 1000;

	return keep_ms ? version->failed_ms + keep_ms : 0;
}

static void on_due(uv_timer_t *timer)
{
	struct work *work = timer->data;
	const uint64_t now = clock_steady_ms();
	struct version *oldest;

	while ((oldest = registry_oldest_failed(work->ledger->registry)) && due_ms(work, oldest) > 0 &&
	       due_ms(work, oldest) <= now)
		registry_forget_failed(work->ledger->registry, oldest);
	versions_failed_arm(work);
}

void versions_failed_arm(struct work *work)
{
	const struct version *oldest = registry_oldest_failed(work->ledger->registry);

	uv_timer_stop(&work->failed_timer);
	if (!oldest || due_ms(work, oldest) == 0)
		return;
	uv_update_time(work->loop);
	uv_timer_start(&work->failed_timer, on_due, clock_due_in_ms(due_ms(work, oldest)), 0);
}

static void on_forget(void *data, const struct version *version)
{
	tell_version(data, &event_removed, version);
}

void versions_failed_begin(struct work *work)
{
	registry_on_forget_failed(work->ledger->registry, on_forget, work);
	versions_failed_arm(work);
}

int versions_remove(struct work *work, struct version *version, struct error *error)
{
	static const char *const remedies[VERSION_STATES] = {
		[VERSION_BUILDING] = "gpuwmctl cancel ends its job; an abort ends its publish",
		[VERSION_CHECKING] = "gpuwmctl cancel ends its job; an abort ends its publish",
		[VERSION_READY] = "gpuwmctl retire frees it when its last lease and pin are gone",
		[VERSION_RETIRING] =
			"it is freed when its last lease and pin are gone; gpuwmctl retire --force revokes the leases",
	};

	if (version->state != VERSION_FAILED)
		return error_set(error, -EINVAL, remedies[version->state],
				 "%s@%s is %s: only a failed version can be removed",
				 model_name(version->model), version->tag, version_state_name(version->state));
	registry_forget_failed(work->ledger->registry, version);
	versions_failed_arm(work);
	return 0;
}
