#include "job.h"

#include "../memory/memory.h"
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

static int region_hand_in(const struct version_id *region, const struct memory_segment *segment,
			  struct work *work, struct error *error)
{
	const struct loader_region_params params = {.region = region, .bytes = segment->bytes};
	struct message_writer w;
	int r = work_phase(work, "handing in", 0);

	if (r < 0)
		return r;
	message_write_request(&w, request_next_id(), &form_loader_region, &params);
	r = connection_call_with(work->connection, &w, &(struct descriptors){&segment->fd, 1}, -1, NULL, error);
	message_writer_clear(&w);
	return r;
}

/* Makes memory of the job's bytes, rounded up to the device's granularity, that reads as zeros. Sends its descriptor to gpuwmd with
 * loader_region, and waits until gpuwmd has it. This process keeps nothing of it. Fails with -ENOSPC if there is no room, with the
 * codes of memory_ops, and with the code of gpuwmd's refusal. */
static int region_run(struct job *job, struct work *work, struct error *error)
{
	const struct job_region_params *params = job->params;
	struct memory_segment segment = {.fd = -1};
	struct memory_device device;
	uint64_t bytes = params->bytes;
	int r = memory_device_open(params->device, &device, error);

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
		r = region_hand_in(params->region, &segment, work, error);
	device.ops->release(&device, &segment);
	return r;
}

static int region_take(struct job *job, const struct message *message, struct packet *packet,
		       struct error *error)
{
	const struct job_region_params *params = job->params;

	(void)message;
	(void)packet;
	return job_take_devices(job, &params->device, 1, error);
}

const struct job_kind kind_region = {.name = "region",
				     .form = &form_job_region,
				     .bytes = sizeof(struct job),
				     .take = region_take,
				     .run = region_run};
