/* Holds: a loader makes a copy of a part in memory of cuMemAlloc, and stays as long as the copy is needed. */
#include "job_kinds.h"
#include "copies.h"
#include "../versions/versions.h"
#include "../../../proto/wire/messages.h"

static size_t job_hold_put(struct message_writer *w, const struct job *job, const struct config *config,
			   int ret_fds[PACKET_FDS_MAX])
{
	const struct replica *replica = &job->verifies->replicas[job->replica];
	struct part part;

	(void)config;
	record_put(w, form_job_hold.params,
		   &(struct job_hold_params){
			   .model = job->model,
			   .tag = job->tag,
			   .rank = job->rank,
			   .world = job->world,
			   .device = replica->device->id,
		   });
	replica_list(replica, &part);
	return part_write(w, &part, ret_fds);
}

/* The loader reads the version until it has copied it. */
static bool job_hold_begin(struct job *job)
{
	job->verifies->readers++;
	return false;
}

static void job_hold_end(struct work *work, struct job *job, const struct error *error)
{
	struct version *version = job->verifies;
	const bool has_begun = job->loader;

	job->verifies = NULL;
	copies_job_ended(work, job, error);
	if (!has_begun)
		return;
	version->readers--;
	versions_free_unused(work, version);
}

const struct job_actions job_hold = {.put = job_hold_put, .begin = job_hold_begin, .end = job_hold_end};
