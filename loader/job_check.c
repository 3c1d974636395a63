/* The kind of job by which a publisher's part becomes a part of a version. */
#include "jobs.h"

#include "../proto/wire/messages.h"

#include <errno.h>
#include <unistd.h>

struct check_job {
	struct job job;
	int publisher; /* its socket; -1: none */
};

static int check_take(struct job *job, const struct message *message, struct packet *packet,
		      struct error *error)
{
	const struct job_check_params *params = job->params;
	struct check_job *check = (struct check_job *)job;

	(void)message;
	check->publisher = -1;
	job->keep = params->keep;
	if (packet_take_fd(packet, params->publisher, &check->publisher) < 0)
		return error_set(error, -EBADMSG, NULL, "the job came without the publisher's socket");
	return 0;
}

/* Checks a part that is received from the publisher, and hands it on to gpuwmd if it is what it says. */
static int check_run(struct job *job, struct work *work, struct error *error)
{
	const struct job_check_params *params = job->params;
	struct part in = {0};
	struct check_part part = check_part_at(job->place, &in);
	struct check_result result;
	struct error unused;
	uint64_t declared = 0;
	int r;

	part.bytes_max = params->bytes;
	/* Makes the context after which this process may stay, beside what needs none. If this one can't be made, the check makes
	 * one of its own, which is not kept. */
	if (job->keep)
		prepare_start(&(struct prepare_for){job->devices, 1, .keeps = true}, &work->prepare, &unused);
	r = work_phase(work, "waiting for the publisher", 0);
	if (r == 0)
		r = hand_in_receive(((struct check_job *)job)->publisher, work, &in, error);
	if (r < 0)
		return r;
	/* Otherwise the check might make a context beside this one, load the kernels there too, and end it. If the
	 * connection is gone or the job was cancelled, the check notices it itself. */
	prepare_wait(work->prepare, work_advance, work, &unused);
	for (uint32_t i = 0; i < in.segment_count; i++)
		declared += in.segments[i].bytes;
	r = work_phase(work, "checking", declared);
	if (r == 0)
		r = check_part(&part, work_advance, work, &result, error);
	if (r == 0 && result.report.note[0])
		work_note(work, "%s", result.report.note);
	if (r == 0)
		r = work_phase(work, "handing in", 0);
	if (r == 0)
		r = report_checked(work, params->publish, &part, &result, NULL, error);
	part_close(&in);
	return r;
}

static void check_clear(struct job *job)
{
	const struct check_job *check = (struct check_job *)job;

	if (check->publisher >= 0)
		close(check->publisher);
}

const struct job_kind kind_check = {.name = "check",
				    .form = &form_job_check,
				    .place = offsetof(struct job_check_params, place),
				    .bytes = sizeof(struct check_job),
				    .take = check_take,
				    .run = check_run,
				    .clear = check_clear};
