/* Loads: a loader makes a version from files. */
#ifndef GPUWM_DAEMON_JOB_LOAD_H
#define GPUWM_DAEMON_JOB_LOAD_H

#include "job.h"

#include "../../../proto/wire/messages_loader.h"

struct peer_settings;

struct load_job {
	struct job job;
	struct load_params *params; /* the request; owned */
	gid_t *groups; /* of the user who passed files, if the load moves an alias; owned; NULL: none */
	size_t group_count;
	struct job_plan *plan; /* of a dry run; owned; NULL: none yet */
	struct version *shares; /* not freed before the job's end (sharing.h); NULL: none */
};

/* Returns the load that the job is, or NULL if the job is NULL or of another kind. */
static inline struct load_job *load_job_of(const struct job *job)
{
	return job && job->kind == JOB_LOAD ? (struct load_job *)job : NULL;
}

/* Makes a queued load, which copies the request. The caller adds the devices. Fails as job_new. */
int load_job_new(struct work *work, const struct load_params *params, uid_t uid, bool by_operator,
		 struct load_job **ret_load, struct error *error);

/* Returns what a loader needs to ask other nodes. The paths and names stay those of the settings. */
struct job_peers job_peers_of(const struct peer_settings *settings);

/* ---- what it would take: job_plan.c ----
 * The result of a dry run, as its loader found it. */

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

/* Takes the plan of a dry run: for each of its devices, in their order. Fails with -EINVAL if the plan has other devices than the job,
 * or parts that are not what its one device gets, and with -ENOMEM. */
int job_plan_take(struct load_job *load, const struct plan_params *params, struct error *error);

/* Writes the load's plan, with what each device has at this moment and whether gpuwmd would grant the load what it needs, and which
 * versions it would demote for that: the first ones. */
#define JOB_PLAN_DEMOTIONS_MAX 64
void job_plan_put(struct message_writer *w, const struct work *work, const struct load_job *load);

#endif
