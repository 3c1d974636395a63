/* Warns of configured roots that do not exist: every load from below such a root fails. */
#ifndef GPUWM_DAEMON_ROOTS_H
#define GPUWM_DAEMON_ROOTS_H

#include <uv.h>

struct config;
struct roots;

/* NULL: out of memory. */
struct roots *roots_new(uv_loop_t *loop, const struct config *config);
/* Returns NULL. The memory is freed when the last look on libuv's threads has ended. */
struct roots *roots_free(struct roots *roots);

/* Looks for all roots on libuv's threads, without waiting. A file system that hangs blocks one of these threads, and no
 * more. Does nothing if a service starts the loaders, since gpuwmd then does not see their folders. */
void roots_look(struct roots *roots);

/* Looks for all roots in the calling thread. */
void roots_look_now(const struct config *config);

#endif
