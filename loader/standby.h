/* The life of a loader: it says hello, waits for its job, runs it, and reports how it ended. After
 * a load that went well it may keep its CUDA contexts and wait for another load. */
#ifndef GPUWM_LOADER_STANDBY_H
#define GPUWM_LOADER_STANDBY_H

#include "files/roots.h"

#include "../proto/wire/messages.h"
#include "../base/errors.h"

#include <stdbool.h>

/* Runs a loader on the socket to gpuwmd, which it takes over.
 *
 * Returns 0 if a job's end was reported (also if the job failed), if gpuwmd went away before there
 * was one, or if a context that was kept broke. Fails with -errno if gpuwmd could not be told.
 * Contexts that were kept are left to the end of the process, unless another load follows. */
int standby_run(int sock, const struct roots_service *roots);

/* ---- looking at the roots (roots_look.c) ----
 *
 * A loader judges the roots and tells gpuwmd, so that status and doctor say what the next load will find. It does so in a thread:
 * a file system that hangs must not keep a loader from its next job. */

struct roots_look;

/* `service`: if it has roots of its own, those are judged instead of gpuwmd's. Returns NULL if there is no memory. */
struct roots_look *roots_look_new(int sock, const struct roots_service *service);
/* Waits a moment for a look that runs, and leaves one that hangs to the end of the process. Returns NULL. */
struct roots_look *roots_look_free(struct roots_look *look);

/* Judges these roots, which the call copies, and sends `loader_roots` when all are judged. Does nothing while others are being judged. */
void roots_look_begin(struct roots_look *look, const char *const *roots, uint32_t count);

/* ---- the watcher (watcher.c) ----
 *
 * Ends the process when gpuwmd hangs up, whatever call the process is in. gpuwmd hangs up when it
 * ends, and when it gives this loader up. The memory that is half filled is then free again. */

/* Starts a thread that watches a duplicate of `sock` for as long as the process lives. After the
 * hang-up the process has WATCHER_PATIENCE_MS to end by itself, which says more about the reason.
 * Then the thread ends it with the exit status 1. Returns 0. Fails with -errno. */
int watcher_start(int sock);

/* A loader that is not stuck notices the hang-up within a chunk of a few MiB. gpuwmd waits
 * LOADER_KILL_MS before it gives the process up. */
#define WATCHER_PATIENCE_MS 100

/* ---- a connection that systemd accepted (activated.c) ----
 *
 * The connection that a socket unit with Accept=yes hands to a loader. */

/* Takes that connection. It must be what it should be, and its other end must belong to `user` (a
 * name or a number): any other user is refused, root too. Returns 0 and sets *ret_sock. Fails with
 * -EINVAL if there is no such connection, -ENOENT if there is no such user, and -EACCES if the
 * other end is another user's. Then the connection is closed. */
int activated_socket(const char *user, int *ret_sock, struct error *error);

/* Checks that `user` opened the other end of `sock`. Returns 0, or fails as above. activated_socket
 * uses it. */
int activated_peer(int sock, const char *user, struct error *error);

#endif
