#include "nap.h"

#include "../../base/clock.h"

#include <time.h>

/* The first nap is about as long as a hand-over between two GPU streams takes, so a wait for a short kernel is late by no more than
 * the kernel's own time. Naps double up to 1 ms, which keeps a CPU 99 % free. */
#define NAP_MIN_US 20
#define NAP_MAX_US 1000

struct nap nap_begin(const struct gpuwm_region *region)
{
	return (struct nap){.bell = &region->control.head->freed, .streams = region_words_exist(region)};
}

void nap_look(struct nap *nap)
{
	nap->seen = atomic_load(&nap->bell->rung);
}

bool nap_take(struct nap *nap, int64_t deadline)
{
	const int left = clock_left(deadline);

	if (left == 0)
		return false;
	if (!nap->streams) {
		control_sleep(nap->bell, nap->seen, left);
		return true;
	}
	if (nap->next_us < NAP_MIN_US)
		nap->next_us = NAP_MIN_US;
	if (nap->next_us < NAP_MAX_US)
		nanosleep(&(struct timespec){.tv_nsec = nap->next_us * 1000}, NULL);
	else
		control_sleep(nap->bell, nap->seen, NAP_MAX_US / 1000);
	nap->next_us = nap->next_us * 2 < NAP_MAX_US ? nap->next_us * 2 : NAP_MAX_US;
	return true;
}
