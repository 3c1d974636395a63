#include "jobs.h"

#include "../proto/wire/messages.h"

#include <errno.h>

static int region_round_up(const struct memory_device *device, uint64_t *bytes, struct error *error)
{
	uint64_t granularity;
	int r = device->ops->granularity(device, &granularity, error);

	if (r < 0)
		return r;
	if (*bytes == 0 || *bytes > INT64_MAX - granularity)
		return error_set(error, -EINVAL, NULL, "a region can't have %llu bytes",
				 (unsigned long long)*bytes);
	*bytes = (*bytes + granularity - 1) / granularity * granularity;
	return 0;
}

/* Whoever opens the region reads all of it, also what nobody has written. New memory of a GPU may hold what another user's process
 * left there: drivers are seen to clear it, and no document promises that they do. So it is cleared here, although that takes a
 * context (about 100 ms, once for a region), and not in the creator's process, which would have read it before. */
static int region_zero(const struct memory_device *device, struct memory_segment *segment, struct work *work,
		       struct error *error)
{
	int r;

	if (device->ops->fresh_zeros)
		return 0;
	r = work_phase(work, "starting the GPU", 0);
	if (r == 0)
		r = device->ops->map(device, segment, MEMORY_WRITE, error);
	if (r < 0)
		return r;
	r = device->ops->enter(device, error);
	if (r == 0) {
		r = device->ops->zero(device, segment, error);
		device->ops->leave(device);
	}
	device->ops->unmap(device, segment);
	return r;
}

static int region_hand_in(const struct job *job, const struct memory_segment *segment, struct work *work,
			  struct error *error)
{
	const struct loader_region_params params = {.region = &job->region, .bytes = segment->bytes};
	struct message_writer w;
	int r = work_phase(work, "handing in", 0);

	if (r < 0)
		return r;
	message_write_request(&w, request_next_id(), &form_loader_region, &params);
	r = connection_call_with(work->connection, &w, &(struct descriptors){&segment->fd, 1}, -1, NULL, error);
	message_writer_clear(&w);
	return r;
}

int region_run(const struct job *job, struct work *work, struct error *error)
{
	struct memory_segment segment = {.fd = -1};
	struct memory_device device;
	uint64_t bytes = job->bytes;
	int r = memory_device_open(job->device, &device, error);

	if (r == 0)
		r = region_round_up(&device, &bytes, error);
	if (r == 0)
		r = work_phase(work, "allocating", 0);
	if (r < 0)
		return r;
	r = device.ops->create(&device, bytes, &segment, error);
	if (r < 0)
		return r;
	r = region_zero(&device, &segment, work, error);
	if (r == 0)
		r = device.ops->share(&device, &segment, error);
	if (r == 0)
		r = region_hand_in(job, &segment, work, error);
	device.ops->release(&device, &segment);
	return r;
}
