#include "until.h"

#include <poll.h>
#include <time.h>

#define PATIENCE_MS 10000

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

int64_t until_deadline(void)
{
	return now_ms() + PATIENCE_MS;
}

bool until_pause(int64_t deadline)
{
	poll(NULL, 0, 1);
	return now_ms() < deadline;
}
