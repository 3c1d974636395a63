#include "jobs.h"

#include "check.h"

#include "../base/bytes.h"

#include <errno.h>

int verify_run(const struct job *job, struct work *work, struct error *error)
{
	const struct part *in = job->part;
	const struct check_part part = {
		.device = job->device,
		.rank = job->rank,
		.world = job->world,
		.bytes_max = UINT64_MAX,
		.part = in,
		.pace = job->paced ? &job->pace : NULL,
	};
	struct check *check = NULL;
	struct check_result result;
	const struct memory_report *report = &result.report;
	char text[BYTES_TEXT];
	uint64_t bytes = 0;
	int r = work_phase(work, "mapping", 0);

	for (uint32_t i = 0; i < in->segment_count; i++)
		bytes += in->segments[i].bytes;
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
