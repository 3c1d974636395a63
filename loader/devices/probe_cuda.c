/* What only GPUs have: the driver, fabric handles, legacy IPC, MPS, peers. */
#include "probe.h"

#include "../../memory/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

/* CU_DEVICE_ATTRIBUTE_MPS_ENABLED, which older headers lack. */
#define ATTRIBUTE_MPS_ENABLED ((CUdevice_attribute)133)
/* The remedy for a driver that refuses what its attribute promises. */
#define FABRIC_REMEDY "fabric handles need an IMEX channel (nvidia-imex)"

static int attribute(const struct cuda_driver *cuda, int ordinal, CUdevice_attribute name)
{
	int value = -1;

	return cuda->cuDeviceGetAttribute(&value, name, ordinal) == CUDA_SUCCESS ? value : -1;
}

static bool say_yes_or_no(const char *item, const char *device, int value)
{
	if (value < 0)
		probe_say(item, device, PROBE_FAILED, "the driver does not say", "");
	else
		probe_say(item, device, value ? PROBE_OK : PROBE_NO, value ? "yes" : "no", "");
	return value > 0;
}

/* The attribute says 1 on machines whose driver then refuses: only an attempt tells. */
static void probe_fabric(const struct cuda_driver *cuda, const struct memory_device *device)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
	};
	CUmemGenericAllocationHandle handle;
	struct error error;
	uint64_t bytes;
	CUresult result;

	probe_say("fabric", device->id, PROBE_TRYING, "", "");
	if (device->ops->granularity(device, &bytes, &error) < 0) {
		probe_say_error("fabric", device->id, PROBE_FAILED, &error);
		return;
	}
	result = cuda->cuMemCreate(&handle, bytes, &prop, 0);
	if (result == CUDA_SUCCESS) {
		cuda->cuMemRelease(handle);
		probe_say("fabric", device->id, PROBE_OK, "the driver makes memory with fabric handles", "");
		return;
	}
	cuda_fail(result, -ENOTSUP, &error, "the driver makes no memory with fabric handles");
	probe_say("fabric", device->id, PROBE_NO, error.message, FABRIC_REMEDY);
}

static void probe_peers(const struct cuda_driver *cuda, const struct memory_device *device)
{
	char list[TEXT_BYTES_MAX + 1] = "", id[CUDA_ID_BYTES];
	size_t length = 0;

	for (int i = 0; i < cuda->device_count; i++) {
		if (i == device->ordinal || cuda_reaches(i, device->ordinal, NULL) < 0 ||
		    cuda_id(i, id, NULL) < 0 || length + sizeof(id) >= sizeof(list))
			continue;
		length += (size_t)sprintf(list + length, "%s%s", length ? " " : "", id);
	}
	probe_say("peers", device->id, PROBE_OK, list, "");
}

static void probe_device(struct probe_peer *peer, const struct cuda_driver *cuda,
			 const struct memory_device *device)
{
	char text[DEVICE_NAME_BYTES_MAX + 40], name[DEVICE_NAME_BYTES_MAX + 1] = "?";
	size_t total = 0;
	struct error error;

	cuda->cuDeviceGetName(name, sizeof(name), device->ordinal);
	cuda->cuDeviceTotalMem_v2(&total, device->ordinal);
	snprintf(text, sizeof(text), "%s, %.1f GiB", name, (double)total / (double)GIB(1));
	probe_say("device", device->id, PROBE_OK, text, "");
	say_yes_or_no("mps", device->id, attribute(cuda, device->ordinal, ATTRIBUTE_MPS_ENABLED));
	probe_peers(cuda, device);
	if (!say_yes_or_no(
		    "vmm", device->id,
		    attribute(cuda, device->ordinal, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)))
		return;
	probe_fabric(cuda, device);
	if (!say_yes_or_no("posix_fd", device->id,
			   attribute(cuda, device->ordinal,
				     CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)))
		return;
	probe_share(peer, device);
	if (device->ops->enter(device, &error) < 0) {
		probe_say_error("ipc", device->id, PROBE_FAILED, &error);
		return;
	}
	probe_ipc(peer, device);
	device->ops->leave(device);
}

static void probe_devices(struct probe_peer *peer, const struct cuda_driver *cuda)
{
	struct memory_device device;
	char id[CUDA_ID_BYTES], number[32];
	struct error error;

	for (int i = 0; i < cuda->device_count; i++) {
		snprintf(number, sizeof(number), "cuda:%d", i);
		if (cuda_id(i, id, &error) < 0 || memory_device_open(id, &device, &error) < 0)
			probe_say_error("device", number, PROBE_FAILED, &error);
		else
			probe_device(peer, cuda, &device);
	}
}

/* Whether the driver's library is there, usable or not, after cuda_open. */
static bool driver_is_there(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);

	if (!library)
		return false;
	dlclose(library);
	return true;
}

void probe_cuda(struct probe_peer *peer)
{
	const struct cuda_driver *cuda;
	struct error error;
	char text[32];
	int version = 0, r;

	probe_say("driver", "", PROBE_TRYING, "", "");
	r = cuda_open(&cuda, &error);
	if (r < 0) {
		probe_say_error("driver", "", r == -ENODEV || !driver_is_there() ? PROBE_NO : PROBE_FAILED,
				&error);
		return;
	}
	cuda->cuDriverGetVersion(&version);
	snprintf(text, sizeof(text), "%d.%d", version / 1000, version % 1000 / 10);
	probe_say("driver", "", PROBE_OK, text, "");
	probe_devices(peer, cuda);
}
