/* LD_PRELOAD: a wall clock that is an hour slow at two looks, and an hour fast at the next two. */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define HOUR 3600
#define EXPORT __attribute__((visibility("default")))

static time_t jump(void)
{
	static atomic_uint looks;

	return (atomic_fetch_add(&looks, 1) / 2 % 2 ? 1 : -1) * (time_t)HOUR;
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *ret)
{
	int r = (int)syscall(SYS_clock_gettime, clock, ret);

	if (r == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		ret->tv_sec += jump();
	return r;
}

EXPORT int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
	struct timespec now;

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	*ret = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
	return 0;
}

EXPORT time_t time(time_t *ret)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (ret)
		*ret = now.tv_sec;
	return now.tv_sec;
}
