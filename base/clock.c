#include "clock.h"

#include <limits.h>
#include <time.h>

int64_t clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

double clock_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

uint64_t clock_boot_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int64_t clock_deadline(int64_t wait_ms)
{
	int64_t now = clock_ms();

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

int clock_left(int64_t deadline)
{
	int64_t left;

	if (deadline < 0)
		return -1;
	left = deadline - clock_ms();
	if (left < 0)
		return 0;
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
