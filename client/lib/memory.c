#include "memory.h"

#include "../../proto/digest.h"
#include "../../proto/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef GPUWM_CUDA
#include "cuda.h"

static int open_cuda(struct memory_device *device, struct error *error)
{
	return cuda_find(device->id, &device->ordinal, error);
}
#else
const struct memory_ops memory_cuda = {.kind = "cuda"};

static int open_cuda(struct memory_device *device, struct error *error)
{
	return error_set(error, -ENOTSUP, "build it where CUDA_HOME/include/cuda.h is",
			 "this libgpuwm-client was built without cuda.h: it can't use %s", device->id);
}
#endif

int memory_device_open(const char *id, struct memory_device *ret, struct error *error)
{
	struct memory_device device = {.ops = &memory_host};
	const char *wrong = device_wrong(id);
	int r = 0;

	if (wrong)
		return error_set(error, -EINVAL, "a device is \"host\" or a GPU's UUID",
				 "the device \"%.64s\" %s", id, wrong);
	strcpy(device.id, id);
	if (strcmp(id, DEVICE_HOST) != 0) {
		device.ops = &memory_cuda;
		r = open_cuda(&device, error);
	}
	if (r == 0)
		*ret = device;
	return r;
}

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
