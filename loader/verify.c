#include "verify.h"

#include "check.h"
#include "files/hand_in.h"

#include "../base/bytes.h"

#include <errno.h>

/* An error here does not say that the memory differs: nothing was compared yet. It says that a part
 * that was checked before can't be read now. */
static int open_part(const struct check_part *part, struct check **ret, struct error *error)
{
	int r = check_open(part, ret, error);

	if (r == -EBADMSG)
		r = error->code = -EIO;
	return r;
}

static void tell(struct work *work, const struct check_result *result)
{
	const struct memory_report *report = &result->report;
	double rate = report->seconds > 0 ? (double)result->bytes / report->seconds / (double)GIB(1) : 0;
	char bytes[BYTES_TEXT];

	if (report->note[0])
		work_note(work, "%s", report->note);
	/* The unit is always the same, so that kernels can be compared. */
	work_note(work, "read %s in %.6f s of the %s time: %.1f GiB/s", bytes_format(result->bytes, bytes),
		  report->seconds, report->kernel ? "kernel's" : "CPU's", rate);
}

static int compare(struct check *check, uint64_t bytes, struct work *work, struct error *error)
{
	struct check_result result;
	int r = work_phase(work, "verifying", bytes);

	if (r == 0)
		r = check_bytes(check, work_advance, work, &result, error);
	if (r == 0)
		tell(work, &result);
	return r;
}

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
	uint64_t bytes = 0;
	int r = work_phase(work, "mapping", 0);

	for (uint32_t i = 0; i < in->segment_count; i++)
		bytes += in->segments[i].bytes;
	if (r == 0)
		r = open_part(&part, &check, error);
	if (r == 0) {
		r = compare(check, bytes, work, error);
		work->damaged = check_damaged(check);
	}
	check_close(check);
	return r;
}
