/* Ends the process when gpuwmd hangs up, whatever call the process is in. gpuwmd hangs up when it
 * ends, and when it gives this loader up. The memory that is half filled is then free again. */
#ifndef GPUWM_LOADER_WATCHER_H
#define GPUWM_LOADER_WATCHER_H

/* Starts a thread that watches a duplicate of `sock` for as long as the process lives. After the
 * hang-up the process has WATCHER_PATIENCE_MS to end by itself, which says more about the reason.
 * Then the thread ends it with the exit status 1. Returns 0. Fails with -errno. */
int watcher_start(int sock);

/* A loader that is not stuck notices the hang-up within a chunk of a few MiB. gpuwmd waits
 * LOADER_KILL_MS before it gives the process up. */
#define WATCHER_PATIENCE_MS 100

#endif
