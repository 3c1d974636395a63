/* Verify: what lies in the memory of a version, against its index. */
#ifndef GPUWM_LOADER_VERIFY_H
#define GPUWM_LOADER_VERIFY_H

#include "job.h"

/* Maps the job's part and reads all of it, with the job's pace. A note tells bytes, time and speed. -EBADMSG, naming the tensor
 * and both digests, or the bytes that are not zero, says that the memory differs, and only that: what can't be mapped or
 * read is -EIO and its like. -ECANCELED, -ECONNRESET: work_stopped says more. */
int verify_run(const struct job *job, struct work *work, struct error *error);

#endif
