/* The life of a loader: it says hello, waits for its job, runs it, and reports how it ended. After
 * a load that went well it may keep its CUDA contexts and wait for another load. */
#ifndef GPUWM_LOADER_STANDBY_H
#define GPUWM_LOADER_STANDBY_H

#include <stdbool.h>

/* The roots that count for loads. */
struct standby_roots {
	/* the service's, and not the job's: `file` is read at each load, so that it may change */
	bool own;
	const char *file;
};

/* Runs a loader on the socket to gpuwmd, which it takes over.
 *
 * Returns 0 if a job's end was reported (also if the job failed), if gpuwmd went away before there
 * was one, or if a context that was kept broke. Fails with -errno if gpuwmd could not be told.
 * Contexts that were kept are left to the end of the process, unless another load follows. */
int standby_run(int sock, const struct standby_roots *roots);

#endif
