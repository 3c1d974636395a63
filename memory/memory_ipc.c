/* Opening copies by legacy IPC: memory of another process, the holder. */
#include "memory_ipc.h"

#include <errno.h>

int memory_ipc_check(const struct memory_device *device, struct error *error)
{
	if (!device->ops->ipc)
		return error_set(error, -ENOTSUP, "attach by descriptors",
				 "%s is no GPU: CUDA IPC is of GPUs only", device->id);
	return device->ops->ipc->check(error);
}

/* In the context, with the functions. */
static int ipc_begin(const struct memory_device *device, struct error *error)
{
	int r = memory_ipc_check(device, error);

	return r < 0 ? r : device->ops->enter(device, error);
}

int memory_ipc_open(const struct memory_device *device, const struct memory_copy *copy, uint32_t segment,
		    struct memory_segment *ret, struct error *error)
{
	struct error driver;
	void *address;
	int r = ipc_begin(device, error);

	if (r < 0)
		return r;
	r = device->ops->ipc->open(&copy->segments[segment].handle, &address, &driver);
	device->ops->leave(device);
	if (r < 0)
		return error_set(
			error, r,
			"attach again if the holder is gone (gpuwmctl ls names it); a copy is opened by processes "
			"that see the GPU, on its own host",
			"the copy that process %llu holds can't be opened: %s",
			(unsigned long long)copy->holder, driver.message);
	*ret = (struct memory_segment){.fd = -1, .bytes = copy->segments[segment].bytes, .address = address};
	return 0;
}

void memory_ipc_close(const struct memory_device *device, struct memory_segment *segments, uint32_t count)
{
	struct error unused;
	bool entered = count > 0 && ipc_begin(device, &unused) == 0;

	for (uint32_t i = 0; i < count; i++) {
		if (entered && segments[i].address)
			device->ops->ipc->close(segments[i].address);
		segments[i].address = NULL;
	}
	if (entered)
		device->ops->leave(device);
}
