#include "job.h"

#include "check.h"
#include "move/compare.h"

#include "../base/bytes.h"
#include "../proto/wire/messages.h"

#include <errno.h>

#define PACE_CHUNK_BYTES MIB(256) /* if the job says only `permille`: 60 us of an H200 */

static int verify_pace(const struct job_verify_params *params, struct memory_pace *ret, struct error *error)
{
	const uint64_t permille = params->permille ? *params->permille : 1000;

	ret->chunk = params->chunk ? *params->chunk : PACE_CHUNK_BYTES;
	ret->permille = (unsigned)permille;
	if (permille == 0 || permille > 1000)
		return error_set(error, -EINVAL, NULL, "the job's permille is %llu; 1 to 1000 are possible",
				 (unsigned long long)permille);
	if (ret->chunk < MEMORY_PACE_CHUNK_MIN)
		return error_set(error, -EINVAL, NULL, "the job's chunk is %llu bytes; %d is the least",
				 (unsigned long long)ret->chunk, MEMORY_PACE_CHUNK_MIN);
	return 0;
}

/* The part's memory is not read, and may be gone. */
static int verify_source(const struct job_verify_params *params, const struct part *part, struct work *work,
			 struct error *error)
{
	const struct job_move_params files = {
		.model = params->model,
		.tag = params->tag,
		.place = params->place,
		.source = params->source,
		.roots = {params->roots.items, params->roots.count},
		.choice = params->choice,
		.by_publisher = params->by_publisher,
	};

	return move_compare(&files, part, work, error);
}

/* Maps the part and reads all of it, at the job's pace. A note says bytes, time and speed. Fails with -EIO or a similar code if the
 * memory can't be mapped or read. */
static int verify_run(struct job *job, struct work *work, struct error *error)
{
	const struct job_verify_params *params = job->params;
	const struct part *in = &((struct part_job *)job)->part;
	struct check_part part = check_part_at(job->place, in);
	struct memory_pace pace;
	struct check *check = NULL;
	struct check_result result;
	const struct memory_report *report = &result.report;
	char text[BYTES_TEXT];
	uint64_t bytes = 0;
	int r;

	if (params->source)
		return verify_source(params, in, work, error);
	r = verify_pace(params, &pace, error);
	part.pace = params->chunk || params->permille ? &pace : NULL;
	for (uint32_t i = 0; i < in->segment_count; i++)
		bytes += in->segments[i].bytes;
	if (r == 0)
		r = work_phase(work, "mapping", 0);
	if (r == 0)
		r = check_open(&part, &check, error);
	/* An error here does not say that the memory differs: nothing was compared yet. It says that a part
	 * that was checked before can't be read now. */
	if (r == -EBADMSG)
		r = error->code = -EIO;
	if (r < 0)
		return r;
	r = work_phase(work, "verifying", bytes);
	if (r == 0)
		r = check_bytes(check, work_advance, work, &result, error);
	work->damaged = check_damaged(check);
	if (r == 0 && report->note[0])
		work_note(work, "%s", report->note);
	if (r == 0)
		/* The unit is always the same, so that kernels can be compared. */
		work_note(work, "read %s in %.6f s of the %s time: %.1f GiB/s",
			  bytes_format(result.bytes, text), report->seconds,
			  report->kernel ? "kernel's" : "CPU's",
			  report->seconds > 0 ? (double)result.bytes / report->seconds / (double)GIB(1) : 0);
	check_close(check);
	return r;
}

const struct job_kind kind_verify = {.name = "verify",
				     .form = &form_job_verify,
				     .place = offsetof(struct job_verify_params, place),
				     .bytes = sizeof(struct part_job),
				     .take = part_job_take,
				     .run = verify_run,
				     .clear = part_job_clear};
