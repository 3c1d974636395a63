/* The memory of a version in the making: segments side by side in one range of addresses. */
#include "publish_state.h"

#include <errno.h>

/* A child that is made meanwhile must find the descriptor where it closes it. */
static int create(struct gpuwm_publish *publish, uint32_t position, struct error *error)
{
	const struct memory_device *device = &publish->device;
	struct memory_segment *segment = &publish->segments[position];
	int r;

	if (segment->fd >= 0 || segment->handle)
		return 0;
	fork_lock();
	r = device->ops->create(device, publish->plan.segments[position], segment, error);
	fork_unlock();
	return r;
}

static int map(struct gpuwm_publish *publish, uint32_t position, struct error *error)
{
	const struct memory_device *device = &publish->device;
	struct memory_segment *segment = &publish->segments[position];

	if (segment->address)
		return 0;
	return device->ops->map_at(device,
				   memory_range_at(device, &publish->range, publish->segments, position),
				   segment, MEMORY_WRITE, error);
}

/* Fresh host memory reads as zeros; touching it would only cost. */
static int zero(struct gpuwm_publish *publish, uint32_t position, struct error *error)
{
	const struct memory_device *device = &publish->device;
	int r;

	if (publish->bare || device->ops == &memory_host)
		return 0;
	r = device->ops->enter(device, error);
	if (r < 0)
		return r;
	r = device->ops->zero(device, &publish->segments[position], error);
	device->ops->leave(device);
	return r;
}

/* Under the lock. What fails goes on where it stopped when it is tried again. */
static int make(struct gpuwm_publish *publish, uint32_t position, struct error *error)
{
	int r = publish->made[position] ? 0 : create(publish, position, error);

	if (r < 0 || publish->made[position])
		return r;
	r = map(publish, position, error);
	if (r == 0)
		r = zero(publish, position, error);
	publish->made[position] = r == 0;
	return r;
}

int publish_memory_need(struct gpuwm_publish *publish, uint32_t segment, struct error *error)
{
	int r;

	pthread_mutex_lock(&publish->making);
	r = make(publish, segment, error);
	pthread_mutex_unlock(&publish->making);
	return r;
}

int publish_memory_all(struct gpuwm_publish *publish, struct error *error)
{
	int r = 0;

	for (uint32_t i = 0; i < publish->plan.segment_count && r == 0; i++)
		r = publish_memory_need(publish, i, error);
	return r;
}

static int reserve(struct gpuwm_publish *publish, struct error *error)
{
	const struct memory_device *device = &publish->device;
	uint64_t bytes = memory_range_bytes(device, publish->segments, publish->plan.segment_count);

	if (publish->plan.segment_count == 0)
		return 0;
	if (bytes == 0)
		return error_set(error, -EFBIG, NULL, "%llu bytes are more than there are addresses",
				 (unsigned long long)publish->plan.total);
	return device->ops->reserve(device, bytes, NULL, &publish->range, error);
}

int publish_memory_begin(struct gpuwm_publish *publish, bool stepwise, struct error *error)
{
	const struct memory_device *device = &publish->device;
	int r = publish->bare ? 0 : device->ops->hold(device, error);

	publish->held = r == 0 && !publish->bare;
	if (r == 0)
		r = reserve(publish, error);
	return r < 0 || stepwise ? r : publish_memory_all(publish, error);
}

void publish_memory_free(struct gpuwm_publish *publish)
{
	const struct memory_device *device = &publish->device;

	if (!publish->segments)
		return;
	device->ops->idle(device, NULL);
	device->ops->unreserve(device, &publish->range, publish->segments, publish->plan.segment_count);
	for (uint32_t i = 0; i < publish->plan.segment_count; i++)
		device->ops->release(device, &publish->segments[i]);
}
