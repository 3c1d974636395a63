#include "clock.h"

#include <limits.h>
#include <time.h>

static uint64_t read_ns(clockid_t id)
{
	struct timespec now;

	clock_gettime(id, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t clock_steady_ms(void)
{
	return read_ns(CLOCK_MONOTONIC) / 1000000;
}

uint64_t clock_steady_us(void)
{
	return read_ns(CLOCK_MONOTONIC) / 1000;
}

uint64_t clock_steady_ns(void)
{
	return read_ns(CLOCK_MONOTONIC);
}

double clock_steady_seconds(void)
{
	return 1e-9 * (double)read_ns(CLOCK_MONOTONIC);
}

uint64_t clock_boot_ms(void)
{
	return read_ns(CLOCK_BOOTTIME) / 1000000;
}

uint64_t clock_wall_ms(void)
{
	return read_ns(CLOCK_REALTIME) / 1000000;
}

int64_t clock_deadline(int64_t wait_ms)
{
	const int64_t now = (int64_t)clock_steady_ms();

	if (wait_ms < 0)
		return -1;
	return wait_ms > INT64_MAX - now ? INT64_MAX : now + wait_ms;
}

int64_t clock_later(int64_t a, int64_t b)
{
	if (a < 0 || b < 0)
		return -1;
	return a > b ? a : b;
}

int64_t clock_earlier(int64_t a, int64_t b)
{
	if (a < 0 || b < 0)
		return a < 0 ? b : a;
	return a < b ? a : b;
}

int64_t clock_until(int64_t deadline)
{
	int64_t left;

	if (deadline < 0)
		return -1;
	left = deadline - (int64_t)clock_steady_ms();
	return left > 0 ? left : 0;
}

int clock_left(int64_t deadline)
{
	const int64_t left = clock_until(deadline);

	return left > INT_MAX ? INT_MAX : (int)left;
}

void clock_condition(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &attributes);
	pthread_condattr_destroy(&attributes);
}

void clock_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t deadline)
{
	struct timespec at = {deadline / 1000, deadline % 1000 * 1000000};

	if (deadline < 0)
		pthread_cond_wait(condition, lock);
	else
		pthread_cond_timedwait(condition, lock, &at);
}

uint64_t clock_due_in_ms(uint64_t due_ms)
{
	const uint64_t now = clock_steady_ms();

	if (due_ms == 0)
		return 0;
	return due_ms > now ? due_ms - now : 1; /* its timer is due */
}
