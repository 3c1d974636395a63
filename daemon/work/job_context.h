/* The room that the CUDA contexts of a job's loader take. */
#ifndef GPUWM_DAEMON_JOB_CONTEXT_H
#define GPUWM_DAEMON_JOB_CONTEXT_H

struct error;
struct job;
struct loader;

/* Charges what the contexts take of its devices that the loader (NULL: a new one) does not have yet. -EAGAIN: other
 * loaders' are in the way; -ENOSPC, -ENOMEM. */
int job_charge_contexts(struct job *job, const struct loader *loader, struct error *error);
/* The loader has them from now on, until it is gone. */
void job_hand_contexts(struct job *job, struct loader *loader);

#endif
