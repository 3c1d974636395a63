#include "lanes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef GPUWM_CUDA
#include "../client/lib/cuda.h"
#endif

#define PROBE_BYTES 4096 /* of the first copy between two peers, which shows whether peer copies work */

/* How often a reader that waits for a buffer looks. If an event woke its waiter by an interrupt,
 * that would take 1.2 us of the link behind each copy (measured), 2 % of what 4 MiB take. If the
 * waiter spun on the event, that would take a CPU. */
#define LOOK_NS 30000

/* The way to one target. */
struct lane {
	const struct copy_target *target;
#ifdef GPUWM_CUDA
	CUcontext context; /* NULL: not a GPU, so it is written at once */
	CUstream stream;
	/* one for each slot: the last bytes that were sent from the slot have arrived */
	CUevent *events;
	/* the GPU that passes its bytes on to this one; NULL: the host does */
	const struct lane *from;
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
	for (size_t i = 0; r == 0 && i < count; i++) {
		void *to = place_of(lane, &spans[i]);

		/* Bytes that were read straight into this memory are there already. */
		if (to != spans[i].from)
			r = device->ops->write(device, to, spans[i].from, spans[i].bytes, error);
	}
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

/* The caller is inside the context. */
static int make_events(struct lane *lane, size_t slots, struct error *error)
{
	CUresult result = CUDA_SUCCESS;

	lane->events = calloc(slots + 1, sizeof(*lane->events));
	if (!lane->events)
		return error_set(error, -ENOMEM, NULL, "out of memory for %zu buffers", slots);
	for (size_t i = 0; result == CUDA_SUCCESS && i < slots; i++)
		result = driver()->cuEventCreate(&lane->events[i], CU_EVENT_DISABLE_TIMING);
	return result == CUDA_SUCCESS ? 0 : failed(lane, result, "making an event on", error);
}

/* Makes a stream that does not wait for the default stream, and for which the default stream does
 * not wait. */
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

/* Waits until what is on its way has arrived, then closes the lane. */
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

/* Copies from the other GPU, behind what that one got from this slot. */
static int send_from_peer(struct lane *lane, size_t slot, const struct lane_span *spans, size_t count,
			  struct error *error)
{
	const struct cuda_driver *cuda = driver();
	CUresult result = cuda->cuStreamWaitEvent(lane->stream, lane->from->events[slot], 0);

	for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
		result = cuda->cuMemcpyDtoDAsync_v2((CUdeviceptr)place_of(lane, &spans[i]),
						    (CUdeviceptr)place_of(lane->from, &spans[i]),
						    spans[i].bytes, lane->stream);
	if (result == CUDA_SUCCESS)
		result = cuda->cuEventRecord(lane->events[slot], lane->stream);
	return result == CUDA_SUCCESS ? 0 : failed(lane, result, "passing bytes on to", error);
}

static int send_to_gpu(struct lane *lane, size_t slot, const struct lane_span *spans, size_t count,
		       struct error *error)
{
	int r = enter(lane, error);

	if (r < 0)
		return r;
	if (lane->from)
		r = send_from_peer(lane, slot, spans, count, error);
	else
		r = send_from_host(lane, slot, spans, count, error);
	leave();
	return r;
}

static int wait_for_event(struct lane *lane, CUevent event, struct error *error)
{
	const struct timespec pause = {.tv_nsec = LOOK_NS};
	CUresult result;
	int r = enter(lane, error);

	if (r < 0)
		return r;
	while ((result = driver()->cuEventQuery(event)) == CUDA_ERROR_NOT_READY)
		nanosleep(&pause, NULL);
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

static int let_in(const struct lane *from, const struct lane *lane, struct error *error)
{
	const CUmemAccessDesc rights = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = lane->target->device->ordinal},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READ,
	};
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; result == CUDA_SUCCESS && i < from->target->segment_count; i++) {
		const struct memory_segment *segment = &from->target->segments[i];

		result = driver()->cuMemSetAccess((CUdeviceptr)segment->address, segment->bytes, &rights, 1);
	}
	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, -EIO, error, "cuMemSetAccess");
}

static CUdeviceptr probe_place(const struct lane *lane)
{
	return lane->target->segment_count ? (CUdeviceptr)lane->target->segments[0].address : 0;
}

/* Writes `bytes` where the probe begins; NULL: zeros again. */
static int probe_write(const struct lane *lane, const void *bytes, struct error *error)
{
	const struct cuda_driver *cuda = driver();
	CUresult result;
	int r = enter(lane, error);

	if (r < 0)
		return r;
	result = bytes ? cuda->cuMemcpyHtoD_v2(probe_place(lane), bytes, PROBE_BYTES)
		       : cuda->cuMemsetD8_v2(probe_place(lane), 0, PROBE_BYTES);
	if (result == CUDA_SUCCESS)
		result = cuda->cuStreamSynchronize(NULL);
	leave();
	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, -EIO, error, "writing a probe");
}

static int probe_pass_on(const struct lane *from, const struct lane *lane, void *ret, struct error *error)
{
	const struct cuda_driver *cuda = driver();
	CUresult result;
	int r = enter(lane, error);

	if (r < 0)
		return r;
	result = cuda->cuMemcpyDtoDAsync_v2(probe_place(lane), probe_place(from), PROBE_BYTES, lane->stream);
	if (result == CUDA_SUCCESS)
		result = cuda->cuStreamSynchronize(lane->stream);
	if (result == CUDA_SUCCESS)
		result = cuda->cuMemcpyDtoH_v2(ret, probe_place(lane), PROBE_BYTES);
	leave();
	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, -EIO, error, "a first peer copy");
}

/* Tries a copy between two GPUs. On some machines, behind an IOMMU or in a guest, peer copies
 * succeed and move nothing. */
static int probe(const struct lane *from, const struct lane *lane, struct error *error)
{
	uint8_t sent[PROBE_BYTES], back[PROBE_BYTES];
	int r;

	for (size_t i = 0; i < PROBE_BYTES; i++)
		sent[i] = (uint8_t)(i * 7 + i / 256 + 1);
	r = probe_write(from, sent, error);
	if (r == 0)
		r = probe_pass_on(from, lane, back, error);
	if (r == 0 && memcmp(sent, back, PROBE_BYTES) != 0)
		r = error_set(error, -EIO, NULL, "a first peer copy changed the bytes");
	/* If the probe failed, a failure to clean up is not the reason. */
	if (probe_write(from, NULL, r == 0 ? error : NULL) < 0 ||
	    probe_write(lane, NULL, r == 0 ? error : NULL) < 0)
		return r < 0 ? r : -EIO;
	return r;
}

static int pass_on(const struct lane *from, const struct lane *lane, struct error *error)
{
	const struct memory_device *device = lane->target->device;
	int can = 0, r;
	CUresult result = driver()->cuDeviceCanAccessPeer(&can, device->ordinal, from->target->device->ordinal);

	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -EIO, error, "cuDeviceCanAccessPeer");
	if (!can)
		return error_set(error, -ENOTSUP, NULL, "the driver says that it is no peer of %s",
				 from->target->device->id);
	r = let_in(from, lane, error);
	return r < 0 ? r : probe(from, lane, error);
}

static void note(struct lanes *lanes, const char *device, const char *how, const char *why)
{
	size_t used = strlen(lanes->note);

	snprintf(lanes->note + used, sizeof(lanes->note) - used, "%s%s gets its bytes %s%s", used ? "; " : "",
		 device, how, why);
}

/* Finds for each replica a GPU before it that can pass the bytes on. Each link then carries them
 * once each way, so this is as fast over PCIe as over NVLink. */
static void find_peers(struct lanes *lanes)
{
	const struct lane *before = NULL;

	for (size_t i = 0; i < lanes->count; i++) {
		struct lane *lane = &lanes->lanes[i];
		struct error error;

		if (!lane->context)
			continue;
		if (before && pass_on(before, lane, &error) == 0) {
			lane->from = before;
			note(lanes, lane->target->device->id, "over a peer copy from ",
			     before->target->device->id);
		} else if (before) {
			note(lanes, lane->target->device->id, "from the host: ", error.message);
		}
		before = lane;
	}
}

static int lane_open(struct lane *lane, size_t slots, struct error *error)
{
	return lane->target->device->ops == &memory_cuda ? open_gpu(lane, slots, error) : 0;
}

static void lane_close(struct lane *lane, size_t slots)
{
	close_gpu(lane, slots);
}

static int lane_send(struct lane *lane, size_t slot, const struct lane_span *spans, size_t count,
		     struct error *error)
{
	return lane->context ? send_to_gpu(lane, slot, spans, count, error)
			     : write_now(lane, spans, count, error);
}

/* A GPU that gets its bytes from a peer reads that GPU's memory, not the slot. */
static int lane_wait(struct lane *lane, size_t slot, struct error *error)
{
	return lane->context && !lane->from ? wait_for_event(lane, lane->events[slot], error) : 0;
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

static void find_peers(struct lanes *lanes)
{
	(void)lanes;
}

static void lane_close(struct lane *lane, size_t slots)
{
	(void)lane, (void)slots;
}

static int lane_send(struct lane *lane, size_t slot, const struct lane_span *spans, size_t count,
		     struct error *error)
{
	(void)slot;
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
		lanes->lanes[lanes->count].target = &targets[i];
		r = lane_open(&lanes->lanes[lanes->count++], slots, error);
	}
	if (r < 0) {
		lanes_close(lanes);
		return r;
	}
	find_peers(lanes);
	*ret = lanes;
	return 0;
}

int lanes_send(struct lanes *lanes, size_t slot, const struct lane_span *spans, size_t count,
	       struct error *error)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < lanes->count; i++)
		r = lane_send(&lanes->lanes[i], slot, spans, count, error);
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

	for (size_t i = lanes->count; r == 0 && i > 0; i--)
		r = lane_drain(&lanes->lanes[i - 1], error);
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
