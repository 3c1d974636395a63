/* What is particular to each kind of job (job_actions in job.h). work/work.c has the list. */
#ifndef GPUWM_DAEMON_JOB_KINDS_H
#define GPUWM_DAEMON_JOB_KINDS_H

#include "job.h"

extern const struct job_actions job_load, job_check, job_verify, job_region, job_move, job_hold;

#endif
