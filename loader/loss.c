#include "loss.h"

#include <errno.h>

#ifdef GPUWM_CUDA

#include "nvml.h"

#include "../client/lib/cuda.h"
#include "../client/lib/memory.h"

#include <string.h>

/* ---- what is seen from outside ---- */

/* If the driver shows no GPU at all, it may still work: the last GPU may be the one that is
 * lost. */
static bool is_missing_in_cuda(const char *id)
{
	const struct cuda_driver *cuda;
	int ordinal, r = cuda_open(&cuda, NULL);

	if (r == 0)
		r = cuda_find(id, &ordinal, NULL);
	return r == -ENODEV;
}

bool loss_is_seen(const char *id, struct error *why)
{
	enum nvml_word word = nvml_ask(id, why);

	if (word == NVML_LOST)
		return true;
	return (word == NVML_ABSENT || word == NVML_DIVIDED) && is_missing_in_cuda(id);
}

/* ---- what shows in a context ---- */

/* Unless a GPU is in the default compute mode, the driver refuses a context because another process
 * has one. */
static bool is_shared(const struct memory_device *device)
{
	const struct cuda_driver *cuda;
	int mode = CU_COMPUTEMODE_DEFAULT;

	return cuda_open(&cuda, NULL) == 0 &&
	       cuda->cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device->ordinal) ==
		       CUDA_SUCCESS &&
	       mode == CU_COMPUTEMODE_DEFAULT;
}

/* If an error broke the context of the failed job, any call that waits for the context returns that
 * error again. */
static int ask_context(const struct memory_device *device, struct error *why)
{
	int r = device->ops->enter(device, why);

	if (r < 0)
		return r == -ENODEV && !is_shared(device) ? -EBUSY : r;
	r = device->ops->idle(device, why);
	device->ops->leave(device);
	return r;
}

bool loss_is_met(const char *id, struct error *why)
{
	struct memory_device device;

	if (loss_is_seen(id, why))
		return true;
	/* If this process can't see a GPU, that does not mean that the GPU is lost. */
	return memory_device_open(id, &device, why) == 0 && ask_context(&device, why) == -ENODEV;
}

/* ---- whether it is back ---- */

#define PATTERN_BYTES 4096
#define PATTERN_BYTE 0x5a

static int write_and_read(const struct memory_device *device, struct memory_segment *segment,
			  struct error *error)
{
	unsigned char pattern[PATTERN_BYTES], back[PATTERN_BYTES] = {0};
	int r = device->ops->map(device, segment, MEMORY_WRITE, error);

	memset(pattern, PATTERN_BYTE, sizeof(pattern));
	if (r == 0)
		r = device->ops->write(device, segment->address, pattern, sizeof(pattern), error);
	if (r == 0)
		r = device->ops->read(device, back, segment->address, sizeof(back), error);
	if (r == 0 && memcmp(pattern, back, sizeof(back)) != 0)
		r = error_set(error, -ENODEV, NULL, "its memory does not hold what is written");
	return r;
}

static int try_memory(const struct memory_device *device, struct error *error)
{
	struct memory_segment segment = {.fd = -1};
	uint64_t bytes;
	int r = device->ops->granularity(device, &bytes, error);

	if (r == 0)
		r = device->ops->create(device, bytes, &segment, error);
	if (r < 0)
		return r;
	r = write_and_read(device, &segment, error);
	device->ops->release(device, &segment);
	return r;
}

int loss_examine(const char *id, struct error *error)
{
	struct memory_device device;
	int r;

	if (loss_is_seen(id, error))
		return error->code;
	r = memory_device_open(id, &device, error);
	if (r == 0)
		r = device.ops->enter(&device, error);
	if (r < 0)
		return r;
	r = try_memory(&device, error);
	device.ops->leave(&device);
	return r;
}

#else

bool loss_is_seen(const char *id, struct error *why)
{
	(void)id;
	(void)why;
	return false;
}

bool loss_is_met(const char *id, struct error *why)
{
	(void)id;
	(void)why;
	return false;
}

int loss_examine(const char *id, struct error *error)
{
	return error_set(error, -ENODEV, "it was built without CUDA", "gpuwm-loader can't use %s", id);
}

#endif
