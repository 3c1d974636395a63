/* Ends the process when gpuwmd hangs up, in whatever call it is: gpuwmd's end, or its closing of
 * the socket to give this loader up, gives back the memory that is half filled. */
#ifndef GPUWM_LOADER_WATCHER_H
#define GPUWM_LOADER_WATCHER_H

/* A thread of its own, on a duplicate of sock, for as long as the process lives. The process
 * has WATCHER_PATIENCE_MS to end by itself, which tells more; then its exit status is 1. -errno. */
int watcher_start(int sock);

/* A loader that is not stuck notices the hang-up within a chunk of a few MiB; gpuwmd waits
 * LOADER_KILL_MS before it gives the process up. */
#define WATCHER_PATIENCE_MS 100

#endif
