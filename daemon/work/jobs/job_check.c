#include "job_check.h"
#include "../../config/config.h"
#include "../../ledger/device.h"
#include "../versions/publishers.h"
#include "../versions/versions.h"
#include "../work.h"

#include <errno.h>

static size_t job_check_put(struct message_writer *w, const struct job *job, const struct config *config,
			    int ret_fds[PACKET_FDS_MAX])
{
	const struct check_job *check = check_job_of(job);

	record_put(w, form_job_check.params,
		   &(struct job_check_params){
			   .publish = &check->publish,
			   .place = {job->rank, job->world, job->devices[0]->id},
			   .bytes = check->bytes,
			   .publisher = 0,
			   .keep = check->is_one_of_many && job->devices[0]->context > 0 &&
				   config->keep_checker_s > 0,
		   });
	ret_fds[0] = job->publisher_sock;
	return job->publisher_sock >= 0;
}

/* A part that it did not finish fails its version. */
static void job_check_end(struct work *work, struct job *job, const struct error *error)
{
	struct publish *publish = publish_find(work->ledger->publishes, &check_job_of(job)->publish);
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

const struct job_actions job_check = {
	.size = sizeof(struct check_job),
	.put = job_check_put,
	.begin = job_hand_on,
	.end = job_check_end,
	.clear = job_check_clear,
};
