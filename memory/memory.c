#include "memory.h"
#include "../proto/index/digest.h"

#include <errno.h>
#include <string.h>

#ifndef GPUWM_CUDA
static int cuda_missing(struct memory_device *device, struct error *error)
{
	return error_set(error, -ENOTSUP, "build it where CUDA_HOME/include/cuda.h is",
			 "this libgpuwm-client was built without cuda.h: it can't use %s", device->id);
}

const struct memory_ops memory_cuda = {.kind = &kind_cuda, .open = cuda_missing};
#endif

const struct memory_ops *memory_ops_of(const char *id)
{
	const struct memory_kind *kind = memory_kind_of(id);
	size_t i = 0;

	while (memories[i] && memories[i]->kind != kind)
		i++;
	return memories[i];
}

int memory_device_open(const char *id, struct memory_device *ret, struct error *error)
{
	struct memory_device device = {0};
	const char *wrong = device_wrong(id);
	int r = 0;

	if (wrong)
		return error_set(error, -EINVAL, "a device is \"host\" or a GPU's UUID",
				 "the device \"%.64s\" %s", id, wrong);
	strcpy(device.id, id);
	device.ops = memory_ops_of(id);
	if (!device.ops)
		return error_set(error, -ENOTSUP, "use a library that was built with it",
				 "this library can't use memory of the kind of %s", id);
	if (device.ops->open)
		r = device.ops->open(&device, error);
	if (r == 0)
		*ret = device;
	return r;
}

int memory_current_device(char ret_id[DEVICE_BYTES_MAX + 1])
{
	int r = -ENOENT;

	for (size_t i = 0; r < 0 && memories[i]; i++)
		if (memories[i]->current)
			r = memories[i]->current(ret_id);
	return r;
}

static int peer_add(struct memory_device *device, const char *id, struct error *error)
{
	struct memory_device peer;
	int r = id ? memory_device_open(id, &peer, error)
		   : error_set(error, -EINVAL, "one of gpuwmd's devices", "a peer is missing");

	if (r < 0)
		return r;
	if (peer.ops != device->ops || !device->ops->reaches)
		return error_set(error, -EINVAL, "attach without peers; the CPU reads host memory itself",
				 "host memory has no peers, and is none");
	if (peer.ordinal == device->ordinal)
		return 0;
	for (unsigned i = 0; i < device->peer_count; i++) {
		if (device->peers[i] == peer.ordinal)
			return 0;
	}
	r = device->ops->reaches(&peer, device, error);
	if (r == 0)
		device->peers[device->peer_count++] = peer.ordinal;
	return r;
}

int memory_device_peers(struct memory_device *device, const char *const *ids, size_t count, struct error *error)
{
	int r = 0;

	if (count > 0 && !ids)
		return error_set(error, -EINVAL, NULL, "%zu peers, which were not given", count);
	if (count > MEMORY_PEERS_MAX)
		return error_set(error, -EINVAL, NULL, "%zu peers, the limit is %d", count, MEMORY_PEERS_MAX);
	device->peer_count = 0;
	for (size_t i = 0; i < count && r == 0; i++)
		r = peer_add(device, ids[i], error);
	return r;
}

/* ---- ranges ---- */

uint64_t memory_range_bytes(const struct memory_device *device, const struct memory_segment *segments,
			    uint32_t count)
{
	const uint64_t spacing = device->ops->spacing;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (segments[i].bytes > INT64_MAX - spacing - bytes)
			return 0;
		bytes += (segments[i].bytes + spacing - 1) / spacing * spacing;
	}
	return bytes;
}

void *memory_range_at(const struct memory_device *device, const struct memory_range *range,
		      const struct memory_segment *segments, uint32_t position)
{
	return (char *)range->base + memory_range_bytes(device, segments, position);
}
