#include "jobs.h"

#include <errno.h>

#ifdef GPUWM_CUDA

#include "check.h"

#include "../memory/cuda.h"
#include "../proto/wire/messages.h"

#include <stdlib.h>
#include <string.h>

/* What the driver copies in one call: 0.1 ms of an H200, after which the job looks whether it is cancelled. */
#define COPY_CHUNK_BYTES MIB(256)

struct hold {
	struct memory_device device;
	const struct cuda_driver *cuda;
	struct cuda_ipc ipc;
	bool entered;
	CUevent event; /* NULL: none yet */
	uint32_t count;
	const void **segments; /* of the copy; NULL: not made */
	struct ipc_handle *handles;
	struct ipc_handle event_handle;
};

struct hold *hold_end(struct hold *hold)
{
	if (!hold)
		return NULL;
	if (hold->event)
		hold->cuda->cuEventDestroy_v2(hold->event);
	for (uint32_t i = 0; hold->segments && i < hold->count; i++) {
		if (hold->segments[i])
			hold->cuda->cuMemFree_v2((CUdeviceptr)hold->segments[i]);
	}
	if (hold->entered)
		hold->device.ops->leave(&hold->device);
	free(hold->segments);
	free(hold->handles);
	free(hold);
	return NULL;
}

int hold_check(const struct hold *hold, struct error *error)
{
	const CUresult result = hold->cuda->cuEventQuery(hold->event);

	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, -EIO, error, "asking for the copy's event");
}

static int hold_new(const struct job *job, struct hold **ret, struct error *error)
{
	struct hold *hold = calloc(1, sizeof(*hold));
	int r;

	if (!hold)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	hold->count = job->part->segment_count;
	hold->segments = calloc((size_t)hold->count + 1, sizeof(*hold->segments));
	hold->handles = calloc((size_t)hold->count + 1, sizeof(*hold->handles));
	r = hold->segments && hold->handles ? memory_device_open(job->device, &hold->device, error)
					    : error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	if (r == 0 && hold->device.ops != &memory_cuda)
		r = error_set(error, -ENOTSUP, "attach by descriptors",
			      "%s is no GPU: CUDA IPC is of GPUs only", job->device);
	if (r == 0)
		r = cuda_open(&hold->cuda, error);
	if (r == 0)
		r = cuda_ipc_calls(&hold->ipc, error);
	if (r == 0)
		*ret = hold;
	else
		hold_end(hold);
	return r;
}

/* ---- the copy ---- */

static int allocate(struct hold *hold, const struct part *part, struct work *work, struct error *error)
{
	int r = work_phase(work, "allocating", 0);

	for (uint32_t i = 0; r == 0 && i < hold->count; i++) {
		CUdeviceptr address = 0;
		CUresult result = hold->cuda->cuMemAlloc_v2(&address, part->segments[i].bytes);

		hold->segments[i] = (const void *)address;
		if (result == CUDA_ERROR_OUT_OF_MEMORY)
			r = error_set(error, -ENOSPC, "see nvidia-smi for who holds its memory",
				      "no room for a copy of %llu bytes on %s",
				      (unsigned long long)part->segments[i].bytes, hold->device.id);
		else if (result != CUDA_SUCCESS)
			r = cuda_fail(result, -EIO, error, "cuMemAlloc for a copy");
	}
	return r;
}

static int copy_segment(const struct hold *hold, const struct check *check, uint32_t i, uint64_t bytes,
			struct work *work, struct error *error)
{
	const CUdeviceptr to = (CUdeviceptr)hold->segments[i], from = (CUdeviceptr)check_segment(check, i);
	CUresult result = CUDA_SUCCESS;
	int r = 0;

	for (uint64_t done = 0; r == 0 && done < bytes; done += COPY_CHUNK_BYTES) {
		uint64_t chunk = bytes - done < COPY_CHUNK_BYTES ? bytes - done : COPY_CHUNK_BYTES;

		result = hold->cuda->cuMemcpyDtoDAsync_v2(to + done, from + done, chunk, NULL);
		if (result == CUDA_SUCCESS)
			result = hold->cuda->cuStreamSynchronize(NULL);
		r = result == CUDA_SUCCESS ? work_advance(chunk, work)
					   : cuda_fail(result, -EIO, error, "copying a segment");
	}
	return r;
}

static int copy_all(const struct hold *hold, const struct check *check, const struct part *part,
		    struct work *work, struct error *error)
{
	uint64_t bytes = 0;
	int r;

	for (uint32_t i = 0; i < part->segment_count; i++)
		bytes += part->segments[i].bytes;
	r = work_phase(work, "copying", bytes);
	for (uint32_t i = 0; r == 0 && i < part->segment_count; i++)
		r = copy_segment(hold, check, i, part->segments[i].bytes, work, error);
	return r;
}

/* What differs may be the version or the copy. */
static int hold_compare(const struct hold *hold, struct check *check, const struct job *job, struct work *work,
			struct error *error)
{
	struct check_result result;
	uint64_t bytes = 0;
	struct error found;
	int r;

	for (uint32_t i = 0; i < job->part->segment_count; i++)
		bytes += job->part->segments[i].bytes;
	check_elsewhere(check, hold->segments);
	r = work_phase(work, "verifying", bytes);
	if (r == 0)
		r = check_bytes(check, work_advance, work, &result, error);
	if (r == 0 && result.report.note[0])
		work_note(work, "%s", result.report.note);
	if (r != -EBADMSG)
		return r;
	found = *error;
	return error_set(error, -EIO, "gpuwmctl verify tells whether the version itself is damaged",
			 "the copy of %s@%s is not what was checked: %s", job->model, job->tag, found.message);
}

/* ---- the handles ---- */

static int hold_unsupported(CUresult result, struct error *error, const char *what)
{
	const bool lacks = result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE;

	cuda_fail(result, lacks ? -ENOTSUP : -EIO, error, what);
	if (lacks)
		error_set(error, -ENOTSUP,
			  "attach by descriptors; gpuwmctl doctor tries legacy IPC on each GPU",
			  "this GPU has no legacy CUDA IPC here: %s", error->message);
	return error->code;
}

static int make_event(struct hold *hold, struct error *error)
{
	CUipcEventHandle handle;
	CUresult result =
		hold->cuda->cuEventCreate(&hold->event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);

	_Static_assert(sizeof(handle) == IPC_HANDLE_BYTES, "a handle is as long as in messages");
	if (result == CUDA_SUCCESS)
		result = hold->ipc.get_event(&handle, hold->event);
	if (result != CUDA_SUCCESS)
		return hold_unsupported(result, error, "cuIpcGetEventHandle");
	memcpy(hold->event_handle.bytes, &handle, sizeof(handle));
	return 0;
}

static int make_handles(struct hold *hold, struct error *error)
{
	for (uint32_t i = 0; i < hold->count; i++) {
		CUipcMemHandle handle;
		CUresult result = hold->ipc.get_memory(&handle, (CUdeviceptr)hold->segments[i]);

		_Static_assert(sizeof(handle) == IPC_HANDLE_BYTES, "a handle is as long as in messages");
		if (result != CUDA_SUCCESS)
			return hold_unsupported(result, error, "cuIpcGetMemHandle");
		memcpy(hold->handles[i].bytes, &handle, sizeof(handle));
	}
	return make_event(hold, error);
}

static int hold_hand_in(const struct hold *hold, const struct part *part, struct work *work,
			struct error *error)
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
		segments[i] = (struct ipc_segment){texts[i], part->segments[i].bytes};
	}
	ipc_handle_format(&hold->event_handle, event);
	message_write_request(&w, request_next_id(), &form_loader_holds, &params);
	r = connection_call(work->connection, &w, -1, NULL, error);
	message_writer_clear(&w);
	return r;
}

/* ---- the job ---- */

static int hold_make(struct hold *hold, const struct job *job, struct check *check, struct work *work,
		     struct error *error)
{
	CUresult result;
	int r = work_phase(work, "starting the GPU", 0);

	if (r == 0)
		r = hold->device.ops->enter(&hold->device, error);
	hold->entered = r == 0;
	if (r == 0)
		r = allocate(hold, job->part, work, error);
	if (r == 0)
		r = make_handles(hold, error); /* what can't be had fails before the copying */
	if (r == 0)
		r = copy_all(hold, check, job->part, work, error);
	if (r == 0)
		r = hold_compare(hold, check, job, work, error);
	if (r < 0)
		return r;
	result = hold->cuda->cuEventRecord(hold->event, NULL);
	if (result == CUDA_SUCCESS)
		result = hold->cuda->cuStreamSynchronize(NULL);
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -EIO, error, "recording the copy's event");
	return hold_hand_in(hold, job->part, work, error);
}

int hold_run(const struct job *job, struct work *work, struct hold **ret_hold, struct error *error)
{
	const struct check_part part = {
		.device = job->device,
		.rank = job->rank,
		.world = job->world,
		.bytes_max = UINT64_MAX,
		.part = job->part,
	};
	struct hold *hold = NULL;
	struct check *check = NULL;
	int r = hold_new(job, &hold, error);

	if (r == 0)
		r = work_phase(work, "mapping", 0);
	if (r == 0)
		r = check_open(&part, &check, error);
	if (r == -EBADMSG)
		r = error->code = -EIO; /* it says nothing of the memory */
	if (r == 0)
		r = hold_make(hold, job, check, work, error);
	check_close(check);
	if (r == 0)
		*ret_hold = hold;
	else
		hold_end(hold);
	return r;
}

#else

int hold_run(const struct job *job, struct work *work, struct hold **ret_hold, struct error *error)
{
	(void)work;
	(void)ret_hold;
	return error_set(error, -ENOTSUP, "install one that was built where CUDA_HOME/include/cuda.h is",
			 "this gpuwm-loader was built without CUDA: it makes no copies on %s", job->device);
}

int hold_check(const struct hold *hold, struct error *error)
{
	(void)hold;
	(void)error;
	return 0;
}

struct hold *hold_end(struct hold *hold)
{
	(void)hold;
	return NULL;
}

#endif
