#include "clock.h"

#include <time.h>

static uint64_t read_ms(clockid_t id)
{
	struct timespec now;

	clock_gettime(id, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t clock_wall_ms(void)
{
	return read_ms(CLOCK_REALTIME);
}

uint64_t clock_steady_ms(void)
{
	return read_ms(CLOCK_MONOTONIC);
}

uint64_t clock_boot_ms(void)
{
	return read_ms(CLOCK_BOOTTIME);
}

uint64_t clock_steady_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t clock_left_ms(uint64_t until)
{
	uint64_t now = clock_steady_ms();

	if (until == 0)
		return 0;
	return until > now ? until - now : 1; /* its timer is due */
}
