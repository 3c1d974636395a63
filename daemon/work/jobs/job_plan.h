/* What a load would take: the result of a dry run, as its loader found it. */
#ifndef GPUWM_DAEMON_JOB_PLAN_H
#define GPUWM_DAEMON_JOB_PLAN_H

#include "../../../proto/wire/messages.h"

struct device;
struct job;
struct work;

struct job_plan_device {
	const struct device *device;
	uint64_t bytes, segments;
};

struct job_plan {
	uint64_t tensors, files, bytes;
	uint64_t cached; /* bytes of the files that are in the page cache */
	size_t device_count;
	uint64_t parts
		[PARTS_PER_VERSION_MAX]; /* the bytes of each part, in the order of their publishes, if the one device gets several */
	uint32_t part_count; /* 0: each device gets one */
	struct job_plan_device devices[];
};

/* Takes the plan of a job: for each of its devices, in their order. Returns 0 and sets *ret_plan, for free(). Fails with -EINVAL if
 * the plan has other devices than the job, or parts that are not what its one device gets, and with -ENOMEM. */
int job_plan_take(const struct job *job, const struct plan_params *params, struct job_plan **ret_plan,
		  struct error *error);

/* Writes the job's plan, with what each device has at this moment and whether gpuwmd would grant the load what it needs, and which
 * versions it would demote for that: the first ones. */
#define JOB_PLAN_DEMOTIONS_MAX 64
void job_plan_put(struct message_writer *w, const struct work *work, const struct job *job);

#endif
