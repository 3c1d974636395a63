#include "pieces.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool on_gpu(void)
{
	const char *backend = getenv("GPUWM_TEST_BACKEND");

	return backend && strcmp(backend, "host") != 0;
}

void pieces_begin(struct memory_device *device, struct memory_segment *segments, int count, const void *data,
		  uint64_t bytes)
{
	const char *id = on_gpu() ? "GPU-fa4e0000-0000-4000-8000-000000000000" : "host";
	struct error error;
	char run[32];

	snprintf(run, sizeof(run), "pieces%d", (int)getpid());
	setenv("FAKECUDA_RUN", run, 1);
	setenv("FAKECUDA_STRICT", "1", 1);
	cr_assert_eq(memory_device_open(id, device, &error), 0, "%s", error.message);
	for (int i = 0; i < count; i++) {
		cr_assert_eq(device->ops->create(device, bytes, &segments[i], &error), 0, "%s", error.message);
		cr_assert_eq(device->ops->map(device, &segments[i], MEMORY_WRITE, &error), 0, "%s",
			     error.message);
	}
	cr_assert_eq(device->ops->enter(device, &error), 0, "%s", error.message);
	for (int i = 0; i < count; i++)
		cr_assert_eq(device->ops->write(device, segments[i].address, data, bytes, &error), 0, "%s",
			     error.message);
}

void pieces_end(struct memory_device *device, struct memory_segment *segments, int count)
{
	device->ops->leave(device);
	for (int i = 0; i < count; i++)
		device->ops->release(device, &segments[i]);
}
