/* The timers for what happens to versions at a time of their own. */
#include "versions_internal.h"
#include "../../../base/clock.h"

void versions_arm(struct work *work, uv_timer_t *timer, uv_timer_cb on_due, versions_due_fn *due_ms)
{
	struct version *version = NULL;
	uint64_t next = 0;

	while ((version = registry_next_version(work->ledger->registry, NULL, version))) {
		if (due_ms(version) && (next == 0 || due_ms(version) < next))
			next = due_ms(version);
	}
	uv_timer_stop(timer);
	if (next == 0)
		return;
	uv_update_time(work->loop);
	uv_timer_start(timer, on_due, clock_due_in_ms(next), 0);
}
