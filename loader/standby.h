/* The life of a loader: it says hello, waits for its one job, runs it, tells
 * how it ended. */
#ifndef GPUWM_LOADER_STANDBY_H
#define GPUWM_LOADER_STANDBY_H

#include <stdbool.h>

/* Whose roots count. */
struct standby_roots {
	bool own; /* the service's: roots_read of `file` at each load, so that it may change; not the job's */
	const char *file;
};

/* Takes over the socket to gpuwmd. 0: a job was told to its end (also one that
 * failed), or gpuwmd went away before there was one; -errno: gpuwmd could not be told. */
int standby_run(int sock, const struct standby_roots *roots);

#endif
