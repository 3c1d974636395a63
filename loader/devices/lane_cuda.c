/* Lanes to GPUs: each has a stream, and an event for each buffer. */
#include "lanes.h"

#include "../../memory/cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PROBE_BYTES 4096 /* of the first copy between two peers, which shows whether peer copies work */

/* How often a reader that waits for a buffer looks. If an event woke its waiter by an interrupt,
 * that would take 1.2 us of the link behind each copy (measured), 2 % of what 4 MiB take. If the
 * waiter spun on the event, that would take a CPU. */
#define LOOK_NS 30000

struct way_slot {
	CUevent event; /* the last bytes that were sent from the slot have arrived */
	bool sent; /* nobody has waited for that yet */
};

struct way {
	CUcontext context;
	CUstream stream;
	size_t slot_count;
	struct way_slot slots[];
};

static struct way *way_of(const struct lane *lane)
{
	return lane->way;
}

static const struct cuda_driver *driver(void)
{
	const struct cuda_driver *cuda = NULL;

	return cuda_open(&cuda, NULL) < 0 ? NULL : cuda;
}

static int lane_failed(const struct lane *lane, CUresult result, const char *what, struct error *error)
{
	char text[128];

	snprintf(text, sizeof(text), "%s %s", what, lane->target->device->id);
	return cuda_fail(result, -EIO, error, text);
}

static int lane_enter(const struct lane *lane, struct error *error)
{
	CUresult result = driver()->cuCtxPushCurrent_v2(way_of(lane)->context);

	return result == CUDA_SUCCESS ? 0 : lane_failed(lane, result, "entering the context of", error);
}

static void lane_leave(void)
{
	CUcontext context;

	driver()->cuCtxPopCurrent_v2(&context);
}

/* Makes a stream that does not wait for the default stream, and for which the default stream does
 * not wait. Makes its events too. */
static int make_stream(const struct lane *lane, struct error *error)
{
	struct way *way = way_of(lane);
	const char *what = "making a stream on";
	CUresult result;
	int r = lane_enter(lane, error);

	if (r < 0)
		return r;
	result = driver()->cuStreamCreate(&way->stream, CU_STREAM_NON_BLOCKING);
	for (size_t i = 0; result == CUDA_SUCCESS && i < way->slot_count; i++) {
		what = "making an event on";
		result = driver()->cuEventCreate(&way->slots[i].event, CU_EVENT_DISABLE_TIMING);
	}
	if (result != CUDA_SUCCESS)
		r = lane_failed(lane, result, what, error);
	lane_leave();
	return r;
}

static int open_lane(struct lane *lane, size_t slots, struct error *error)
{
	const struct cuda_driver *cuda;
	struct way *way;
	CUresult result;
	int r = cuda_open(&cuda, error);

	if (r < 0)
		return r;
	way = calloc(1, sizeof(*way) + slots * sizeof(*way->slots));
	if (!way)
		return error_set(error, -ENOMEM, NULL, "out of memory for %zu buffers", slots);
	way->slot_count = slots;
	lane->way = way;
	result = cuda->cuDevicePrimaryCtxRetain(&way->context, lane->target->device->ordinal);
	if (result == CUDA_SUCCESS)
		return make_stream(lane, error);
	way->context = NULL;
	return lane_failed(lane, result, "making a CUDA context on", error);
}

static void end_stream(const struct lane *lane)
{
	const struct cuda_driver *cuda = driver();
	const struct way *way = way_of(lane);

	if (lane_enter(lane, NULL) < 0)
		return;
	if (way->stream)
		cuda->cuStreamSynchronize(way->stream);
	for (size_t i = 0; i < way->slot_count; i++)
		if (way->slots[i].event)
			cuda->cuEventDestroy_v2(way->slots[i].event);
	if (way->stream)
		cuda->cuStreamDestroy_v2(way->stream);
	lane_leave();
}

static void close_lane(struct lane *lane)
{
	const struct cuda_driver *cuda = driver();

	if (cuda && lane->way && way_of(lane)->context) {
		end_stream(lane);
		cuda->cuDevicePrimaryCtxRelease_v2(lane->target->device->ordinal);
	}
	free(lane->way);
}

static int send_from_host(struct lane *lane, size_t slot, const struct lane_span *spans, size_t count,
			  struct error *error)
{
	const struct cuda_driver *cuda = driver();
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
		result = cuda->cuMemcpyHtoDAsync_v2((CUdeviceptr)lane_place(lane, &spans[i]), spans[i].from,
						    spans[i].bytes, way_of(lane)->stream);
	if (result == CUDA_SUCCESS)
		result = cuda->cuEventRecord(way_of(lane)->slots[slot].event, way_of(lane)->stream);
	return result == CUDA_SUCCESS ? 0 : lane_failed(lane, result, "copying to", error);
}

/* Copies from the other GPU, behind what that one got from this slot. */
static int send_from_peer(struct lane *lane, size_t slot, const struct lane_span *spans, size_t count,
			  struct error *error)
{
	const struct cuda_driver *cuda = driver();
	CUresult result =
		cuda->cuStreamWaitEvent(way_of(lane)->stream, way_of(lane->from)->slots[slot].event, 0);

	for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
		result = cuda->cuMemcpyDtoDAsync_v2((CUdeviceptr)lane_place(lane, &spans[i]),
						    (CUdeviceptr)lane_place(lane->from, &spans[i]),
						    spans[i].bytes, way_of(lane)->stream);
	if (result == CUDA_SUCCESS)
		result = cuda->cuEventRecord(way_of(lane)->slots[slot].event, way_of(lane)->stream);
	return result == CUDA_SUCCESS ? 0 : lane_failed(lane, result, "passing bytes on to", error);
}

static int send_lane(struct lane *lane, size_t slot, const struct lane_span *spans, size_t count,
		     struct error *error)
{
	int r = lane_enter(lane, error);

	if (r < 0)
		return r;
	way_of(lane)->slots[slot].sent = true;
	if (lane->from)
		r = send_from_peer(lane, slot, spans, count, error);
	else
		r = send_from_host(lane, slot, spans, count, error);
	lane_leave();
	return r;
}

/* A GPU that gets its bytes from a peer reads that GPU's memory, not the buffer. Of a cut, most buffers go to one GPU
 * only, and the lanes to the others ask their drivers nothing. */
static int wait_lane(struct lane *lane, size_t slot, struct error *error)
{
	const struct timespec pause = {.tv_nsec = LOOK_NS};
	struct way_slot *of = &way_of(lane)->slots[slot];
	CUresult result;
	int r;

	if (lane->from || !of->sent)
		return 0;
	r = lane_enter(lane, error);
	if (r < 0)
		return r;
	while ((result = driver()->cuEventQuery(of->event)) == CUDA_ERROR_NOT_READY)
		nanosleep(&pause, NULL);
	lane_leave();
	of->sent = result != CUDA_SUCCESS;
	return result == CUDA_SUCCESS ? 0 : lane_failed(lane, result, "waiting for copies to", error);
}

static int drain_lane(struct lane *lane, struct error *error)
{
	CUresult result;
	int r = lane_enter(lane, error);

	if (r < 0)
		return r;
	result = driver()->cuStreamSynchronize(way_of(lane)->stream);
	lane_leave();
	return result == CUDA_SUCCESS ? 0 : lane_failed(lane, result, "waiting for copies to", error);
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
	int r = lane_enter(lane, error);

	if (r < 0)
		return r;
	result = bytes ? cuda->cuMemcpyHtoD_v2(probe_place(lane), bytes, PROBE_BYTES)
		       : cuda->cuMemsetD8_v2(probe_place(lane), 0, PROBE_BYTES);
	if (result == CUDA_SUCCESS)
		result = cuda->cuStreamSynchronize(NULL);
	lane_leave();
	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, -EIO, error, "writing a probe");
}

static int probe_pass_on(const struct lane *from, const struct lane *lane, void *ret, struct error *error)
{
	const struct cuda_driver *cuda = driver();
	CUresult result;
	int r = lane_enter(lane, error);

	if (r < 0)
		return r;
	result = cuda->cuMemcpyDtoDAsync_v2(probe_place(lane), probe_place(from), PROBE_BYTES,
					    way_of(lane)->stream);
	if (result == CUDA_SUCCESS)
		result = cuda->cuStreamSynchronize(way_of(lane)->stream);
	if (result == CUDA_SUCCESS)
		result = cuda->cuMemcpyDtoH_v2(ret, probe_place(lane), PROBE_BYTES);
	lane_leave();
	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, -EIO, error, "a first peer copy");
}

/* Tries a copy between two GPUs. On some machines, behind an IOMMU or in a guest, peer copies
 * succeed and move nothing. */
static int lane_probe(const struct lane *from, const struct lane *lane, struct error *error)
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
	return r < 0 ? r : lane_probe(from, lane, error);
}

const struct lane_ops lane_cuda = {
	.open = open_lane,
	.close = close_lane,
	.send = send_lane,
	.wait = wait_lane,
	.drain = drain_lane,
	.pass_on = pass_on,
};
