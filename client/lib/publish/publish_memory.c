/* The memory of a version in the making: segments side by side in one range of addresses. */
#include "publish_state.h"

#include <errno.h>
#include <unistd.h>

/* A child that is made meanwhile must find the descriptor where it closes it. */
static int segment_create(struct gpuwm_publish *publish, uint32_t position, struct error *error)
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

/* Touching what reads as zeros already would only cost. */
static int segment_zero(struct gpuwm_publish *publish, uint32_t position, struct error *error)
{
	const struct memory_device *device = &publish->device;
	int r;

	if (publish->bare || device->ops->fresh_zeros)
		return 0;
	r = device->ops->enter(device, error);
	if (r < 0)
		return r;
	r = device->ops->zero(device, &publish->segments[position], error);
	device->ops->leave(device);
	return r;
}

/* Under the lock. What fails goes on where it stopped when it is tried again. */
static int segment_make(struct gpuwm_publish *publish, uint32_t position, struct error *error)
{
	const struct memory_device *device = &publish->device;
	struct memory_segment *segment = &publish->segments[position];
	int r = publish->made[position] ? 0 : segment_create(publish, position, error);

	if (r < 0 || publish->made[position])
		return r;
	if (!segment->address)
		r = device->ops->map_at(device,
					memory_range_at(device, &publish->range, publish->segments, position),
					segment, MEMORY_WRITE, error);
	if (r == 0)
		r = segment_zero(publish, position, error);
	publish->made[position] = r == 0;
	return r;
}

int publish_memory_need(struct gpuwm_publish *publish, uint32_t segment, struct error *error)
{
	int r;

	pthread_mutex_lock(&publish->making);
	r = segment_make(publish, segment, error);
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

int publish_memory_begin(struct gpuwm_publish *publish, bool stepwise, struct error *error)
{
	const struct memory_device *device = &publish->device;
	const uint32_t count = publish->plan.segment_count;
	const uint64_t bytes = memory_range_bytes(device, publish->segments, count);
	int r = publish->bare ? 0 : device->ops->hold(device, error);

	if (r < 0)
		return r;
	publish->held = !publish->bare;
	if (count == 0)
		return 0;
	if (bytes == 0)
		return error_set(error, -EFBIG, NULL, "%llu bytes are more than there are addresses",
				 (unsigned long long)publish->plan.total);
	r = device->ops->reserve(device, bytes, NULL, &publish->range, error);
	return r < 0 || stepwise ? r : publish_memory_all(publish, error);
}

static int publish_memory_lost(struct gpuwm_publish *publish, int r, struct error *error)
{
	struct error why = *error;

	for (uint32_t i = 0; i < publish->plan.segment_count; i++) {
		if (publish->segments[i].address)
			return r;
	}
	if (publish->mapping)
		publish->mapping->part->lost = true;
	return error_set(error, -ENOTRECOVERABLE, "publish again; what uses the memory must not",
			 "the memory was unmapped and could not be mapped again: %s", why.message);
}

int publish_memory_close(struct gpuwm_publish *publish, struct error *error)
{
	const struct memory_device *device = &publish->device;
	const uint32_t count = publish->plan.segment_count;
	int r;

	if (!publish->stays || count == 0) {
		device->ops->unreserve(device, &publish->range, publish->segments, count);
		return 0;
	}
	r = device->ops->reaccess(device, &publish->range, publish->segments, count, MEMORY_READ, error);
	publish->read_only = true;
	return r < 0 ? publish_memory_lost(publish, r, error) : 0;
}

bool publish_has_exports(const struct gpuwm_publish *publish)
{
	return publish->mapping && keep_others(&publish->mapping->keep) > 0;
}

int publish_memory_reopen(struct gpuwm_publish *publish, struct error *error)
{
	const struct memory_device *device = &publish->device;
	const uint32_t count = publish->plan.segment_count;
	int r;

	/* Also what was written all the time, if no child has it yet: from now on one is to have it. */
	if (!publish->segments || !publish_has_exports(publish) || publish->mapping->part->lost ||
	    (!publish->read_only && !device->ops->fork_omits_writable))
		return 0;
	r = device->ops->reaccess(device, &publish->range, publish->segments, count, MEMORY_WRITE, error);
	publish->read_only = false;
	return r < 0 ? publish_memory_lost(publish, r, error) : 0;
}

void publish_memory_give(struct gpuwm_publish *publish)
{
	fork_lock();
	mapped_part_take(publish->mapping->part, &publish->range, publish->segments,
			 publish->plan.segment_count, publish->held);
	publish->segments = NULL;
	publish->part.segments = NULL;
	fork_unlock();
	publish->range = (struct memory_range){0};
	publish->held = false;
}

/* A child that is made now must not close the number, which may be another file's by then. To close the last
 * descriptor of a memfd takes 57 ms a GiB: not under the lock. */
static struct memory_segment segment_take(struct memory_segment *segment)
{
	struct memory_segment taken;

	fork_lock();
	taken = *segment;
	*segment = (struct memory_segment){.fd = -1};
	fork_unlock();
	return taken;
}

void publish_release_segment(struct gpuwm_publish *publish, uint32_t position)
{
	struct memory_segment segment = segment_take(&publish->segments[position]);

	publish->segments[position].bytes = segment.bytes;
	publish->device.ops->release(&publish->device, &segment);
}

static void publish_memory_release(struct gpuwm_publish *publish)
{
	const struct memory_device *device = &publish->device;

	device->ops->idle(device, NULL);
	device->ops->unreserve(device, &publish->range, publish->segments, publish->plan.segment_count);
	for (uint32_t i = 0; i < publish->plan.segment_count; i++) {
		struct memory_segment segment = segment_take(&publish->segments[i]);

		device->ops->release(device, &segment);
	}
	if (publish->held)
		device->ops->unhold(device);
	publish->held = false;
}

void publish_memory_end(struct gpuwm_publish *publish)
{
	struct gpuwm_mapping *mapping = publish->mapping;

	if (mapping && keep_claim(&mapping->keep)) {
		mapped_part_free(mapping->part);
		mapping_free(mapping, NULL);
	} else if (mapping) {
		/* What is mapped needs no descriptor. */
		fork_lock();
		for (uint32_t i = 0; i < publish->plan.segment_count; i++) {
			if (publish->segments[i].fd >= 0)
				close(publish->segments[i].fd);
			publish->segments[i].fd = -1;
		}
		fork_unlock();
		publish_memory_give(publish);
		keep_give_up(&mapping->keep);
	}
	publish->mapping = NULL;
	if (publish->segments)
		publish_memory_release(publish);
}
