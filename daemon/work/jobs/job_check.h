/* Checks: a loader reads what a publisher handed in, before anybody gets it. */
#ifndef GPUWM_DAEMON_JOB_CHECK_H
#define GPUWM_DAEMON_JOB_CHECK_H

#include "job.h"

struct check_job {
	struct job job;
	struct version_id publish;
	uint64_t bytes; /* of the part */
	bool is_one_of_many; /* of a version without a name, or a cached one: such checks come in numbers */
};

/* Returns the check that the job is, or NULL if the job is of another kind. */
static inline struct check_job *check_job_of(const struct job *job)
{
	return job->kind == JOB_CHECK ? (struct check_job *)job : NULL;
}

#endif
