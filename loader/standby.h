/* The life of a loader: it says hello, waits for its job, runs it, tells
 * how it ended. After a load that went well it may keep its CUDA contexts, and wait for another one. */
#ifndef GPUWM_LOADER_STANDBY_H
#define GPUWM_LOADER_STANDBY_H

#include <stdbool.h>

/* Whose roots count. */
struct standby_roots {
	bool own; /* the service's: roots_read of `file` at each load, so that it may change; not the job's */
	const char *file;
};

/* Takes over the socket to gpuwmd. 0: a job was told to its end (also one that
 * failed), gpuwmd went away before there was one, or a context that was kept broke; -errno: gpuwmd could not be told.
 * Contexts that were kept are left to the end of the process, unless another load follows. */
int standby_run(int sock, const struct standby_roots *roots);

#endif
