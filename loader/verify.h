/* Verify: compares the memory of a version with its index. */
#ifndef GPUWM_LOADER_VERIFY_H
#define GPUWM_LOADER_VERIFY_H

#include "job.h"

/* Maps the job's part and reads all of it, at the job's pace. A note says bytes, time and speed.
 *
 * Returns 0. Fails with -EBADMSG if the memory differs, and only then; the message names the tensor
 * and both digests, or the bytes that are not zero. Fails with -EIO or a similar code if the memory
 * can't be mapped or read, and with -ECANCELED and -ECONNRESET (see work_stopped). */
int verify_run(const struct job *job, struct work *work, struct error *error);

#endif
