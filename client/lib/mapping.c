#include "mapping.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct mapped_part *parts; /* under fork_lock */

static bool part_is(const struct mapped_part *part, const struct grant *grant)
{
	return part->generation == fork_generation() && part->rank == grant->version.rank &&
	       strcmp(part->version, grant->version.id) == 0 &&
	       strcmp(part->device.id, grant->version.device) == 0;
}

/* Finds or makes the entry, with one more use. */
static struct mapped_part *part_get(const struct grant *grant, const struct memory_device *device)
{
	struct mapped_part *part;

	fork_lock();
	for (part = parts; part && !part_is(part, grant); part = part->next)
		;
	if (!part)
		part = calloc(1, sizeof(*part));
	if (part && part->uses++ == 0) {
		strcpy(part->version, grant->version.id);
		part->rank = grant->version.rank;
		part->generation = fork_generation();
		part->device = *device;
		pthread_mutex_init(&part->lock, NULL);
		part->next = parts;
		parts = part;
	}
	fork_unlock();
	return part;
}

/* True when it was the last use: the entry is out of the table then. */
static bool part_put(struct mapped_part *part)
{
	bool last;

	fork_lock();
	last = --part->uses == 0;
	for (struct mapped_part **link = &parts; last && *link; link = &(*link)->next) {
		if (*link == part) {
			*link = part->next;
			break;
		}
	}
	fork_unlock();
	return last;
}

static void part_back(struct mapped_part *part)
{
	fork_lock();
	part->uses = 1;
	part->next = parts;
	parts = part;
	fork_unlock();
}

static void part_unmap(struct mapped_part *part)
{
	part->device.ops->unreserve(&part->device, &part->range, part->segments, part->segment_count);
	for (uint32_t i = 0; i < part->segment_count; i++)
		part->device.ops->release(&part->device, &part->segments[i]);
	free(part->segments);
	part->segments = NULL;
	part->segment_count = 0;
	if (part->mapped)
		index_map_close(&part->index);
	part->mapped = false;
}

static void part_free(struct mapped_part *part)
{
	part_unmap(part);
	if (part->held)
		part->device.ops->unhold(&part->device);
	pthread_mutex_destroy(&part->lock);
	free(part);
}

static int import_all(struct mapped_part *part, const struct grant *grant, struct error *error)
{
	const struct memory_device *device = &part->device;
	int r = 0;

	for (uint32_t i = 0; i < grant->version.segments && r == 0; i++) {
		const struct grant_segment *from = &grant->segments[i];

		r = device->ops->import(device, from->fd, from->bytes, false, &part->segments[i], error);
		if (r == 0)
			part->segment_count = i + 1;
	}
	return r;
}

static int map_all(struct mapped_part *part, struct error *error)
{
	const struct memory_device *device = &part->device;
	uint64_t bytes = memory_range_bytes(device, part->segments, part->segment_count);
	int r;

	if (part->segment_count == 0)
		return 0;
	if (bytes == 0)
		return error_set(error, -EPROTO, NULL, "get_handles: segments larger than any memory");
	r = device->ops->reserve(device, bytes, NULL, &part->range, error);
	if (r < 0)
		return r;
	return device->ops->map_all(device, &part->range, part->segments, part->segment_count, error);
}

/* Under part->lock. */
static int part_map(struct mapped_part *part, struct grant *grant, const struct index_map *index,
		    struct error *error)
{
	int r;

	part->segments = calloc((size_t)grant->version.segments + 1, sizeof(*part->segments));
	if (!part->segments)
		return error_set(error, -ENOMEM, NULL, "out of memory for %u segments",
				 grant->version.segments);
	r = import_all(part, grant, error);
	if (r == 0)
		r = map_all(part, error);
	if (r < 0) {
		part_unmap(part);
		return r;
	}
	part->index = *index;
	part->mapped = true;
	return 0;
}

/* Under part->lock: maps on the first use, else takes only what the index tells. */
static int part_ready(struct mapped_part *part, struct grant *grant, struct error *error)
{
	struct index_map index;
	int r = grant_describe(grant, &index, error);

	if (r < 0)
		return r;
	if (!part->mapped)
		r = part_map(part, grant, &index, error);
	if (!part->mapped || part->index.data != index.data)
		index_map_close(&index);
	return r;
}

int mapped_part_use(struct grant *grant, struct mapped_part **ret, struct error *error)
{
	struct memory_device device;
	struct mapped_part *part;
	int r = memory_device_open(grant->version.device, &device, error);

	if (r < 0)
		return r;
	part = part_get(grant, &device);
	if (!part)
		return error_set(error, -ENOMEM, NULL, "out of memory for a mapping");
	/* Of two threads that attach the same at once, the second finds it
	 * mapped; when the first failed, the second tries with its own lease. */
	pthread_mutex_lock(&part->lock);
	r = part_ready(part, grant, error);
	pthread_mutex_unlock(&part->lock);
	if (r == 0)
		*ret = part;
	else if (part_put(part))
		part_free(part);
	return r;
}

int mapped_part_hold(struct mapped_part *part, struct error *error)
{
	int r = 0;

	pthread_mutex_lock(&part->lock);
	if (!part->held)
		r = part->device.ops->hold(&part->device, error);
	part->held = r == 0;
	pthread_mutex_unlock(&part->lock);
	return r;
}

int mapped_part_drop(struct mapped_part *part, struct error *error)
{
	if (!part_put(part))
		return 0;
	/* Any other failure means that the context is broken: nothing runs in it
	 * any more, so the memory can go. */
	if (part->device.ops->idle(&part->device, error) == -EBUSY) {
		part_back(part);
		return -EBUSY;
	}
	part_free(part);
	return 0;
}
