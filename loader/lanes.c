#include "lanes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef GPUWM_CUDA
#include "../client/lib/cuda.h"
#endif

/* The way to one target. */
struct lane {
	const struct copy_target *target;
#ifdef GPUWM_CUDA
	CUcontext context; /* NULL: no GPU, written at once */
	CUstream stream;
	CUevent *events; /* a slot: when what was sent from it last has arrived */
	bool peer; /* gets its bytes from the first GPU */
#endif
};

struct lanes {
	struct lane *lanes;
	size_t count, slots;
	char note[TEXT_BYTES_MAX + 1];
};

static void *place_of(const struct lane *lane, const struct lane_span *span)
{
	return (char *)lane->target->addresses[span->tensor] + span->offset;
}

static int write_now(const struct lane *lane, const struct lane_span *spans, size_t count, struct error *error)
{
	const struct memory_device *device = lane->target->device;
	int r = device->ops->enter(device, error);

	if (r < 0)
		return r;
	for (size_t i = 0; r == 0 && i < count; i++)
		r = device->ops->write(device, place_of(lane, &spans[i]), spans[i].from, spans[i].bytes, error);
	device->ops->leave(device);
	return r;
}

#ifdef GPUWM_CUDA

static const struct cuda_driver *driver(void)
{
	const struct cuda_driver *cuda = NULL;

	return cuda_open(&cuda, NULL) < 0 ? NULL : cuda;
}

static int failed(const struct lane *lane, CUresult result, const char *what, struct error *error)
{
	char text[128];

	snprintf(text, sizeof(text), "%s %s", what, lane->target->device->id);
	return cuda_fail(result, -EIO, error, text);
}

static int enter(const struct lane *lane, struct error *error)
{
	CUresult result = driver()->cuCtxPushCurrent_v2(lane->context);

	return result == CUDA_SUCCESS ? 0 : failed(lane, result, "entering the context of", error);
}

static void leave(void)
{
	CUcontext context;

	driver()->cuCtxPopCurrent_v2(&context);
}

/* Inside the context. Waiting sleeps: readers wait for most of a load. */
static int make_events(struct lane *lane, size_t slots, struct error *error)
{
	const unsigned flags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
	CUresult result = CUDA_SUCCESS;

	lane->events = calloc(slots + 1, sizeof(*lane->events));
	if (!lane->events)
		return error_set(error, -ENOMEM, NULL, "out of memory for %zu buffers", slots);
	for (size_t i = 0; result == CUDA_SUCCESS && i < slots; i++)
		result = driver()->cuEventCreate(&lane->events[i], flags);
	return result == CUDA_SUCCESS ? 0 : failed(lane, result, "making an event on", error);
}

/* A stream that the default one does not wait for, nor it for that. */
static int open_gpu(struct lane *lane, size_t slots, struct error *error)
{
	const struct memory_device *device = lane->target->device;
	const struct cuda_driver *cuda;
	CUcontext context;
	CUresult result;
	int r = cuda_open(&cuda, error);

	if (r < 0)
		return r;
	result = cuda->cuDevicePrimaryCtxRetain(&context, device->ordinal);
	if (result != CUDA_SUCCESS)
		return failed(lane, result, "making a CUDA context on", error);
	lane->context = context;
	r = enter(lane, error);
	if (r < 0)
		return r;
	result = cuda->cuStreamCreate(&lane->stream, CU_STREAM_NON_BLOCKING);
	if (result != CUDA_SUCCESS)
		r = failed(lane, result, "making a stream on", error);
	if (r == 0)
		r = make_events(lane, slots, error);
	leave();
	return r;
}

/* What is on its way arrives first. */
static void close_gpu(struct lane *lane, size_t slots)
{
	const struct cuda_driver *cuda = driver();

	if (!lane->context || !cuda)
		return;
	if (enter(lane, NULL) == 0) {
		if (lane->stream)
			cuda->cuStreamSynchronize(lane->stream);
		for (size_t i = 0; lane->events && i < slots; i++)
			if (lane->events[i])
				cuda->cuEventDestroy_v2(lane->events[i]);
		if (lane->stream)
			cuda->cuStreamDestroy_v2(lane->stream);
		leave();
	}
	free(lane->events);
	cuda->cuDevicePrimaryCtxRelease_v2(lane->target->device->ordinal);
}

static int send_from_host(struct lane *lane, size_t slot, const struct lane_span *spans, size_t count,
			  struct error *error)
{
	const struct cuda_driver *cuda = driver();
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
		result = cuda->cuMemcpyHtoDAsync_v2((CUdeviceptr)place_of(lane, &spans[i]), spans[i].from,
						    spans[i].bytes, lane->stream);
	if (result == CUDA_SUCCESS)
		result = cuda->cuEventRecord(lane->events[slot], lane->stream);
	return result == CUDA_SUCCESS ? 0 : failed(lane, result, "copying to", error);
}

/* Behind what the first GPU got from this slot. */
static int send_from_peer(struct lane *lane, const struct lane *first, size_t slot,
			  const struct lane_span *spans, size_t count, struct error *error)
{
	const struct cuda_driver *cuda = driver();
	CUresult result = cuda->cuStreamWaitEvent(lane->stream, first->events[slot], 0);

	for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
		result = cuda->cuMemcpyDtoDAsync_v2((CUdeviceptr)place_of(lane, &spans[i]),
						    (CUdeviceptr)place_of(first, &spans[i]), spans[i].bytes,
						    lane->stream);
	return result == CUDA_SUCCESS ? 0 : failed(lane, result, "passing bytes on to", error);
}

/* The first that is a GPU, or NULL. */
static struct lane *first_gpu(const struct lanes *lanes)
{
	for (size_t i = 0; i < lanes->count; i++)
		if (lanes->lanes[i].context)
			return &lanes->lanes[i];
	return NULL;
}

static int send_to_gpu(const struct lanes *lanes, struct lane *lane, size_t slot, const struct lane_span *spans,
		       size_t count, struct error *error)
{
	int r = enter(lane, error);

	if (r < 0)
		return r;
	if (lane->peer)
		r = send_from_peer(lane, first_gpu(lanes), slot, spans, count, error);
	else
		r = send_from_host(lane, slot, spans, count, error);
	leave();
	return r;
}

static int wait_for_event(struct lane *lane, CUevent event, struct error *error)
{
	CUresult result;
	int r = enter(lane, error);

	if (r < 0)
		return r;
	result = driver()->cuEventSynchronize(event);
	leave();
	return result == CUDA_SUCCESS ? 0 : failed(lane, result, "waiting for copies to", error);
}

static int wait_for_stream(struct lane *lane, struct error *error)
{
	CUresult result;
	int r = enter(lane, error);

	if (r < 0)
		return r;
	result = driver()->cuStreamSynchronize(lane->stream);
	leave();
	return result == CUDA_SUCCESS ? 0 : failed(lane, result, "waiting for copies to", error);
}

static int lane_open(struct lane *lane, size_t slots, struct error *error)
{
	return lane->target->device->ops == &memory_cuda ? open_gpu(lane, slots, error) : 0;
}

static void lane_close(struct lane *lane, size_t slots)
{
	close_gpu(lane, slots);
}

static int lane_send(const struct lanes *lanes, struct lane *lane, size_t slot, const struct lane_span *spans,
		     size_t count, struct error *error)
{
	return lane->context ? send_to_gpu(lanes, lane, slot, spans, count, error)
			     : write_now(lane, spans, count, error);
}

/* A peer reads the first GPU's memory, not the slot. */
static int lane_wait(struct lane *lane, size_t slot, struct error *error)
{
	return lane->context && !lane->peer ? wait_for_event(lane, lane->events[slot], error) : 0;
}

static int lane_drain(struct lane *lane, struct error *error)
{
	return lane->context ? wait_for_stream(lane, error) : 0;
}

#else

static int lane_open(struct lane *lane, size_t slots, struct error *error)
{
	(void)lane, (void)slots, (void)error;
	return 0;
}

static void lane_close(struct lane *lane, size_t slots)
{
	(void)lane, (void)slots;
}

static int lane_send(const struct lanes *lanes, struct lane *lane, size_t slot, const struct lane_span *spans,
		     size_t count, struct error *error)
{
	(void)lanes, (void)slot;
	return write_now(lane, spans, count, error);
}

static int lane_wait(struct lane *lane, size_t slot, struct error *error)
{
	(void)lane, (void)slot, (void)error;
	return 0;
}

static int lane_drain(struct lane *lane, struct error *error)
{
	(void)lane, (void)error;
	return 0;
}

#endif

int lanes_open(const struct copy_target *targets, size_t count, size_t slots, struct lanes **ret,
	       struct error *error)
{
	struct lanes *lanes = calloc(1, sizeof(*lanes));
	int r = 0;

	if (lanes)
		lanes->lanes = calloc(count + 1, sizeof(*lanes->lanes));
	if (!lanes || !lanes->lanes) {
		lanes_close(lanes);
		return error_set(error, -ENOMEM, NULL, "out of memory for the way to %zu devices", count);
	}
	lanes->slots = slots;
	for (size_t i = 0; r == 0 && i < count; i++) {
		if (targets[i].device->ops == &memory_host)
			continue;
		lanes->lanes[lanes->count].target = &targets[i];
		r = lane_open(&lanes->lanes[lanes->count++], slots, error);
	}
	if (r < 0)
		lanes_close(lanes);
	else
		*ret = lanes;
	return r;
}

int lanes_send(struct lanes *lanes, size_t slot, const struct lane_span *spans, size_t count,
	       struct error *error)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < lanes->count; i++)
		r = lane_send(lanes, &lanes->lanes[i], slot, spans, count, error);
	return r;
}

int lanes_wait(struct lanes *lanes, size_t slot, struct error *error)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < lanes->count; i++)
		r = lane_wait(&lanes->lanes[i], slot, error);
	return r;
}

int lanes_drain(struct lanes *lanes, struct error *error)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < lanes->count; i++)
		r = lane_drain(&lanes->lanes[i], error);
	return r;
}

struct lanes *lanes_close(struct lanes *lanes)
{
	if (!lanes)
		return NULL;
	for (size_t i = 0; i < lanes->count; i++)
		lane_close(&lanes->lanes[i], lanes->slots);
	free(lanes->lanes);
	free(lanes);
	return NULL;
}

const char *lanes_note(const struct lanes *lanes)
{
	return lanes->note;
}
