#include "loss.h"

#include "devices.h"

#include <errno.h>
#include <string.h>

/* ---- what is seen from outside ---- */

static bool (*seen_by(const char *id))(const char *id, struct error *why)
{
	const struct device_kind *kind = device_kind_of(memory_kind_of(id));

	return kind ? kind->is_lost : NULL;
}

bool loss_is_possible(const char *id)
{
	return seen_by(id) != NULL;
}

bool loss_is_seen(const char *id, struct error *why)
{
	return loss_is_possible(id) && seen_by(id)(id, why);
}

/* ---- what shows in a context ---- */

/* If an error broke the context of the failed job, any call that waits for the context returns that
 * error again. */
static int ask_context(const struct memory_device *device, struct error *why)
{
	const struct device_kind *kind = device_kind_of(device->ops->kind);
	int r = device->ops->enter(device, why);

	if (r == -ENODEV && kind->is_exclusive && kind->is_exclusive(device))
		return -EBUSY;
	if (r < 0)
		return r;
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
