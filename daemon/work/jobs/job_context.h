/* The room that the CUDA contexts of a job's loader take. */
#ifndef GPUWM_DAEMON_JOB_CONTEXT_H
#define GPUWM_DAEMON_JOB_CONTEXT_H

struct error;
struct job;
struct loader;

/* Charges the job's devices with the contexts that the loader (NULL: a new one) does not have yet. Fails with -EAGAIN if the
 * contexts fit once contexts of other loaders have gone, and with -ENOSPC and -ENOMEM. */
int job_charge_contexts(struct job *job, const struct loader *loader, struct error *error);
/* Moves the charges to the loader, which keeps them until its process is gone. */
void job_hand_contexts(struct job *job, struct loader *loader);

#endif
