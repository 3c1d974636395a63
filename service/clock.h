/* The times of the services. gpuwmd has those of its loop. */
#ifndef GPUWM_SERVICE_CLOCK_H
#define GPUWM_SERVICE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Microseconds of a clock that never jumps. */
static inline uint64_t clock_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Milliseconds of the same clock. */
static inline uint64_t clock_ms(void)
{
	return clock_us() / 1000;
}

/* Milliseconds since 1970. */
static inline uint64_t clock_wall_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

#endif
