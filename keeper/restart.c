#include "restart.h"

uint64_t restart_delay(struct restart *restart, uint64_t ready_ms)
{
	uint64_t delay;

	if (ready_ms > restart->max_ms)
		restart_reset(restart);
	delay = restart->next_ms < restart->max_ms ? restart->next_ms : restart->max_ms;
	restart->next_ms = delay == 0 ? RESTART_DELAY_MS : delay * 2;
	return delay;
}

void restart_reset(struct restart *restart)
{
	restart->next_ms = 0;
}
