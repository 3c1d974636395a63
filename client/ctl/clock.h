/* The clock that waits are measured with. */
#ifndef GPUWM_CTL_CLOCK_H
#define GPUWM_CTL_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds of a clock that only goes forward. */
static inline uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Milliseconds of the same clock. They are signed: waits subtract them. */
static inline int64_t clock_ms(void)
{
	return (int64_t)(clock_ns() / 1000000);
}

#endif
