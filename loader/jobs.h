/* The kinds of jobs besides loads (load.h, peer/peer_load.h) and moves (move/move.h). */
#ifndef GPUWM_LOADER_JOBS_H
#define GPUWM_LOADER_JOBS_H

#include "job.h"

/* ---- verify: compares the memory of a version with its index ---- */

/* Maps the job's part and reads all of it, at the job's pace. A note says bytes, time and speed.
 *
 * Returns 0. Fails with -EBADMSG if the memory differs, and only then; the message names the tensor
 * and both digests, or the bytes that are not zero. Fails with -EIO or a similar code if the memory
 * can't be mapped or read, and with -ECANCELED and -ECONNRESET (see work_stopped). */
int verify_run(const struct job *job, struct work *work, struct error *error);

/* ---- region: its memory is made here, and handed over to gpuwmd ---- */

/* Makes memory of the job's bytes, rounded up to the device's granularity, that reads as zeros. Sends its descriptor to gpuwmd with
 * loader_region, and waits until gpuwmd has it. This process keeps nothing of it. Returns 0. Fails with -ENOSPC if there is no room,
 * with the codes of memory_ops, with the code of gpuwmd's refusal, and as work_phase does. */
int region_run(const struct job *job, struct work *work, struct error *error);

/* ---- hold: a copy of a part for processes that can't take descriptors (daemon/ledger/ipc_copy.h) ---- */

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
