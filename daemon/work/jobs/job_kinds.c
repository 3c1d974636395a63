/* What is particular to the kinds of jobs that have no file of their own. */
#include "job.h"
#include "../../config/config.h"
#include "../../ledger/device.h"
#include "../versions/versions.h"
#include "../work.h"
#include "../../../proto/wire/messages.h"
#include "../versions/publishers.h"
#include "copies.h"
#include "../regions/regions.h"

#include <errno.h>

/* ---- checks: a loader reads what a publisher handed in, before anybody gets it ---- */

static size_t job_check_put(struct message_writer *w, const struct job *job, const struct config *config,
			    int ret_fds[PACKET_FDS_MAX])
{
	record_put(w, form_job_check.params,
		   &(struct job_check_params){
			   .publish = &job->publish,
			   .place = {job->rank, job->world, job->devices[0]->id},
			   .bytes = job->bytes,
			   .publisher = 0,
			   .keep = job->is_one_of_many && job->devices[0]->context > 0 &&
				   config->keep_checker_s > 0,
		   });
	ret_fds[0] = job->publisher_sock;
	return job->publisher_sock >= 0;
}

/* A part that it did not finish fails its version. */
static void job_check_end(struct work *work, struct job *job, const struct error *error)
{
	struct publish *publish = publish_find(work->ledger->publishes, &job->publish);
	struct publish_part *part = publish ? publish_part_find(publish, job->rank, job->devices[0]) : NULL;
	struct error unfinished;

	if (!part || part->checker != job)
		return;
	if (publish->version->replicas[part->replica].checked) {
		part->checker = NULL;
		return;
	}
	if (!error)
		error_set(&unfinished, -EIO, NULL, "gpuwm-loader ended its job without finishing it");
	versions_fail(work, publish, error ? error : &unfinished, NULL);
}

static void job_check_clear(struct job *job)
{
	job->hand_in = hand_in_forget(job->hand_in);
	job_close_socket(job);
}

const struct job_actions job_check = {.size = sizeof(struct job),
				      .put = job_check_put,
				      .begin = job_hand_on,
				      .end = job_check_end,
				      .clear = job_check_clear};

/* ---- holds: a loader makes a copy of a part in memory of cuMemAlloc, and stays as long as the copy is needed ---- */

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
			   .place = {job->rank, job->world, replica->device->id},
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

const struct job_actions job_hold = {
	.size = sizeof(struct job), .put = job_hold_put, .begin = job_hold_begin, .end = job_hold_end};

/* ---- regions: a loader makes the memory of a region, since gpuwmd touches no device ---- */

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

const struct job_actions job_region = {
	.size = sizeof(struct job), .put = job_region_put, .end = job_region_end};
