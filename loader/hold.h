/* Makes a copy of a part for processes that can't take descriptors, and holds it (daemon/ledger/ipc_copy.h). */
#ifndef GPUWM_LOADER_HOLD_H
#define GPUWM_LOADER_HOLD_H

#include "job.h"

struct hold;

/* Runs a job of the kind `hold`: checks the part, copies it to memory of cuMemAlloc, compares the copy with the digests of the
 * index, and hands gpuwmd the handles of its segments and of an event behind the copying. Returns 0 and sets *ret_hold: the copy
 * is there until hold_end. This thread is in the device's context until then. Fails with -ENOTSUP (the device or the driver has no
 * legacy IPC), -ENOSPC (no memory is left on the device), -EIO (also if the copy differs from the index), and the codes of
 * work_phase. */
int hold_run(const struct job *job, struct work *work, struct hold **ret_hold, struct error *error);
/* Fails with -EIO if the context of the copy can't be used any more. */
int hold_check(const struct hold *hold, struct error *error);
/* Frees the copy. Other processes must not use it any more. Returns NULL; NULL is fine. */
struct hold *hold_end(struct hold *hold);

#endif
