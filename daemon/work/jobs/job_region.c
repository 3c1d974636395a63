/* The memory of a region: a loader makes it, since gpuwmd touches no device. */
#include "job_kinds.h"
#include "../regions/regions.h"
#include "../../../proto/wire/messages.h"

static size_t job_region_put(struct message_writer *w, const struct job *job, const struct config *config,
			     int ret_fds[PACKET_FDS_MAX])
{
	(void)config;
	(void)ret_fds;
	record_put(w, form_job_region.params,
		   &(struct job_region_params){&job->region, job->devices[0]->id, job->bytes});
	return 0;
}

static void job_region_end(struct work *work, struct job *job, const struct error *error)
{
	regions_job_ended(work, job, error);
}

const struct job_actions job_region = {.put = job_region_put, .end = job_region_end};
