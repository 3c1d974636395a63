/* A loader judges the roots and tells gpuwmd, so that status and doctor say what the next load will find. It does so in a thread:
 * a file system that hangs must not keep a loader from its next job. */
#ifndef GPUWM_LOADER_ROOTS_LOOK_H
#define GPUWM_LOADER_ROOTS_LOOK_H

#include "../proto/wire/messages.h"
#include "standby.h"

struct roots_look;

/* `service`: if it has roots of its own, those are judged instead of gpuwmd's. Returns NULL if there is no memory. */
struct roots_look *roots_look_new(int sock, const struct standby_roots *service);
/* Waits a moment for a look that runs, and leaves one that hangs to the end of the process. Returns NULL. */
struct roots_look *roots_look_free(struct roots_look *look);

/* Judges these roots, which the call copies, and sends `loader_roots` when all are judged. Does nothing while others are being judged. */
void roots_look_begin(struct roots_look *look, const char *const *roots, uint32_t count);

#endif
