#include "digesting.h"

#include "../base/clock.h"

#include <errno.h>
#include <time.h>

#define REST_STEP_MS 100 /* between looks whether to stop; a cancel is not felt to wait */

bool digest_take(struct digesting *work, uint64_t most, struct digest_part *ret)
{
	uint64_t left;

	while (work->span < work->count && work->offset == work->spans[work->span].bytes) {
		work->span++;
		work->offset = 0;
	}
	if (work->span == work->count)
		return false;
	left = work->spans[work->span].bytes - work->offset;
	*ret = (struct digest_part){work->span, work->offset, left <= most ? left : most / 16 * 16};
	work->offset += ret->bytes;
	return true;
}

int digest_tell(struct digesting *work, uint64_t bytes)
{
	if (work->progress && work->progress(bytes, work->user_data))
		return error_set(work->error, -ECANCELED, NULL, "the digest was stopped");
	return 0;
}

int digest_rest(struct digesting *work, double busy)
{
	double end;
	int r = 0;

	if (!work->pace || work->pace->permille >= 1000)
		return 0;
	end = clock_seconds() + busy * (1000 - work->pace->permille) / work->pace->permille;
	for (double left; r == 0 && (left = end - clock_seconds()) > 0; r = digest_tell(work, 0)) {
		long ns = (long)((left < REST_STEP_MS / 1e3 ? left : REST_STEP_MS / 1e3) * 1e9);

		nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
	}
	return r;
}
