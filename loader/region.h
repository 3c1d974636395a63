/* The memory of a region: made here, and handed over to gpuwmd. */
#ifndef GPUWM_LOADER_REGION_H
#define GPUWM_LOADER_REGION_H

#include "job.h"

/* Makes memory of the job's bytes, rounded up to the device's granularity, that reads as zeros. Sends its descriptor to gpuwmd with
 * loader_region, and waits until gpuwmd has it. This process keeps nothing of it. Returns 0. Fails with -ENOSPC if there is no room,
 * with the codes of memory_ops, with the code of gpuwmd's refusal, and as work_phase does. */
int region_run(const struct job *job, struct work *work, struct error *error);

#endif
