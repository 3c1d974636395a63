/* A copy of a part, for processes that can't take descriptors: the part is checked, copied to memory of cuMemAlloc, and the copy is
 * compared with the digests of the index. gpuwmd gets the handles of its segments and of an event behind the copying. The copy is
 * there until the job is freed, and the main thread is in the device's context until then. Fails with -ENOTSUP if the device or the
 * driver has no legacy IPC, -ENOSPC if no memory is left on the device, and -EIO, also if the copy differs from the index. */
#include "job.h"

#include "check.h"
#include "devices/devices.h"

#include "../memory/memory_ipc.h"
#include "../proto/wire/messages.h"

#include <errno.h>
#include <stdlib.h>

/* What the driver copies in one call: 0.1 ms of an H200, after which the job looks whether it is cancelled. */
#define COPY_CHUNK_BYTES MIB(256)

struct hold {
	struct part_job of;
	struct memory_device device;
	const struct memory_ipc_ops *ipc; /* NULL: the device is not open yet */
	bool entered;
	void *event; /* NULL: none yet */
	uint32_t count;
	void **segments; /* of the copy; NULL: not made */
	struct ipc_handle *handles;
	struct ipc_handle event_handle;
};

/* Frees the copy. Other processes must not use it any more. */
static void hold_end(struct hold *hold)
{
	if (hold->ipc)
		hold->ipc->event_close(hold->event);
	hold->event = NULL;
	for (uint32_t i = 0; hold->ipc && hold->segments && i < hold->count; i++)
		hold->ipc->free(hold->segments[i]);
	if (hold->entered)
		hold->device.ops->leave(&hold->device);
	hold->entered = false;
	free(hold->segments);
	hold->segments = NULL;
	free(hold->handles);
	hold->handles = NULL;
}

static int hold_begin(struct hold *hold, struct error *error)
{
	const char *device = hold->of.job.devices[0];
	const struct device_kind *kind = device_kind_of(memory_kind_of(device));
	int r;

	if (kind && !kind->list)
		return error_set(error, -ENOTSUP,
				 "install one that was built where CUDA_HOME/include/cuda.h is",
				 "this gpuwm-loader was built without CUDA: it makes no copies on %s", device);
	hold->count = hold->of.part.segment_count;
	hold->segments = calloc((size_t)hold->count + 1, sizeof(*hold->segments));
	hold->handles = calloc((size_t)hold->count + 1, sizeof(*hold->handles));
	r = hold->segments && hold->handles ? memory_device_open(device, &hold->device, error)
					    : error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	if (r == 0)
		r = memory_ipc_check(&hold->device, error);
	if (r == 0)
		hold->ipc = hold->device.ops->ipc;
	return r;
}

/* ---- the copy ---- */

static int allocate(struct hold *hold, struct work *work, struct error *error)
{
	const struct part *part = &hold->of.part;
	int r = work_phase(work, "allocating", 0);

	for (uint32_t i = 0; r == 0 && i < hold->count; i++) {
		r = hold->ipc->alloc(part->segments[i].bytes, &hold->segments[i], error);
		if (r == -ENOMEM)
			r = error_set(error, -ENOSPC, "see nvidia-smi for who holds its memory",
				      "no room for a copy of %llu bytes on %s",
				      (unsigned long long)part->segments[i].bytes, hold->device.id);
	}
	return r;
}

static int copy_segment(const struct hold *hold, const struct check *check, uint32_t i, uint64_t bytes,
			struct work *work, struct error *error)
{
	char *to = hold->segments[i];
	const char *from = check_segment(check, i);
	int r = 0;

	for (uint64_t done = 0; r == 0 && done < bytes; done += COPY_CHUNK_BYTES) {
		uint64_t chunk = bytes - done < COPY_CHUNK_BYTES ? bytes - done : COPY_CHUNK_BYTES;

		r = hold->ipc->copy(NULL, to + done, from + done, chunk, error);
		if (r == 0)
			r = work_advance(chunk, work);
	}
	return r;
}

static uint64_t hold_bytes(const struct hold *hold)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < hold->count; i++)
		bytes += hold->of.part.segments[i].bytes;
	return bytes;
}

static int copy_all(const struct hold *hold, const struct check *check, struct work *work, struct error *error)
{
	const struct part *part = &hold->of.part;
	int r = work_phase(work, "copying", hold_bytes(hold));

	for (uint32_t i = 0; r == 0 && i < part->segment_count; i++)
		r = copy_segment(hold, check, i, part->segments[i].bytes, work, error);
	return r;
}

/* What differs may be the version or the copy. */
static int hold_compare(const struct hold *hold, struct check *check, struct work *work, struct error *error)
{
	const struct job_hold_params *params = hold->of.job.params;
	struct check_result result;
	struct error found;
	int r;

	check_elsewhere(check, (const void *const *)hold->segments);
	r = work_phase(work, "verifying", hold_bytes(hold));
	if (r == 0)
		r = check_bytes(check, work_advance, work, &result, error);
	if (r == 0 && result.report.note[0])
		work_note(work, "%s", result.report.note);
	if (r != -EBADMSG)
		return r;
	found = *error;
	return error_set(error, -EIO, "gpuwmctl verify tells whether the version itself is damaged",
			 "the copy of %s@%s is not what was checked: %s", params->model, params->tag,
			 found.message);
}

/* ---- the handles ---- */

static int make_handles(struct hold *hold, struct error *error)
{
	struct error why;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < hold->count; i++)
		r = hold->ipc->handle(hold->segments[i], &hold->handles[i], &why);
	if (r == 0)
		r = hold->ipc->event_open(&hold->event, &hold->event_handle, &why);
	if (r == -ENOTSUP)
		return error_set(error, r,
				 "attach by descriptors; gpuwmctl doctor tries legacy IPC on each GPU",
				 "this GPU has no legacy CUDA IPC here: %s", why.message);
	if (r < 0)
		*error = why;
	return r;
}

static int hold_hand_in(const struct hold *hold, struct work *work, struct error *error)
{
	char texts[PART_SEGMENTS_MAX][IPC_HANDLE_TEXT], event[IPC_HANDLE_TEXT];
	struct ipc_segment segments[PART_SEGMENTS_MAX];
	const struct loader_holds_params params = {.handles = {segments, hold->count}, .event = event};
	struct message_writer w;
	int r = work_phase(work, "handing in", 0);

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < hold->count; i++) {
		ipc_handle_format(&hold->handles[i], texts[i]);
		segments[i] = (struct ipc_segment){texts[i], hold->of.part.segments[i].bytes};
	}
	ipc_handle_format(&hold->event_handle, event);
	message_write_request(&w, request_next_id(), &form_loader_holds, &params);
	r = connection_call(work->connection, &w, -1, NULL, error);
	message_writer_clear(&w);
	return r;
}

/* ---- the job ---- */

static int hold_make(struct hold *hold, struct check *check, struct work *work, struct error *error)
{
	int r = work_phase(work, "starting the GPU", 0);

	if (r == 0)
		r = hold->device.ops->enter(&hold->device, error);
	hold->entered = r == 0;
	if (r == 0)
		r = allocate(hold, work, error);
	if (r == 0)
		r = make_handles(hold, error); /* what can't be had fails before the copying */
	if (r == 0)
		r = copy_all(hold, check, work, error);
	if (r == 0)
		r = hold_compare(hold, check, work, error);
	if (r == 0)
		r = hold->ipc->event_record(hold->event, error);
	return r < 0 ? r : hold_hand_in(hold, work, error);
}

static int hold_run(struct job *job, struct work *work, struct error *error)
{
	struct hold *hold = (struct hold *)job;
	const struct check_part part = check_part_at(job->place, &hold->of.part);
	struct check *check = NULL;
	int r = hold_begin(hold, error);

	if (r == 0)
		r = work_phase(work, "mapping", 0);
	if (r == 0)
		r = check_open(&part, &check, error);
	if (r == -EBADMSG)
		r = error->code = -EIO; /* it says nothing of the memory */
	if (r == 0)
		r = hold_make(hold, check, work, error);
	check_close(check);
	if (r < 0)
		hold_end(hold);
	return r;
}

/* Whether the context of the copy can be used. */
static int hold_check(const struct job *job, struct error *error)
{
	const struct job_hold_params *params = job->params;
	const struct hold *hold = (const struct hold *)job;
	struct error why;
	int r = hold->ipc->event_check(hold->event, &why);

	return r == 0 ? 0
		      : error_set(error, r, why.detail, "the copy of %s@%s can't be used any more: %s",
				  params->model, params->tag, why.message);
}

static void hold_clear(struct job *job)
{
	hold_end((struct hold *)job);
	part_job_clear(job);
}

const struct job_kind kind_hold = {.name = "hold",
				   .form = &form_job_hold,
				   .place = offsetof(struct job_hold_params, place),
				   .bytes = sizeof(struct hold),
				   .take = part_job_take,
				   .run = hold_run,
				   .check = hold_check,
				   .clear = hold_clear};
