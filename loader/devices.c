#include "devices.h"

#include "log.h"
#include "nvml.h"

#include "../client/lib/memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef GPUWM_CUDA
#include "../client/lib/cuda.h"
#endif

static int host_device(struct device *ret, struct error *error)
{
	FILE *file = fopen("/proc/meminfo", "re");
	uint64_t total = 0, available = 0, kib;
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "MemTotal: %" SCNu64 " kB", &kib) == 1)
			total = KIB(kib);
		else if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1)
			available = KIB(kib);
	}
	if (file)
		fclose(file);
	if (!total)
		return error_set(error, -EIO, NULL, "/proc/meminfo does not tell the machine's memory");
	*ret = (struct device){
		.id = DEVICE_HOST,
		.kind = "host",
		.name = "host memory",
		.total = total,
		.free = available,
		.free_known = true,
		.granularity = (uint64_t)sysconf(_SC_PAGESIZE),
	};
	return 0;
}

#ifdef GPUWM_CUDA

static int cuda_device(const struct cuda_driver *cuda, int ordinal, struct device *ret, struct error *error)
{
	struct device device = {.kind = "cuda", .context = CONTEXT_BYTES};
	struct memory_device memory;
	CUdevice number;
	size_t total = 0;
	CUresult result;
	int r = cuda_id(ordinal, device.id, error);

	if (r < 0)
		return r;
	result = cuda->cuDeviceGet(&number, ordinal);
	if (result == CUDA_SUCCESS)
		result = cuda->cuDeviceGetName(device.name, sizeof(device.name), number);
	if (result == CUDA_SUCCESS)
		result = cuda->cuDeviceTotalMem_v2(&total, number);
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -EIO, error, "asking for a GPU's name and memory");
	r = memory_device_open(device.id, &memory, error);
	if (r == 0)
		r = memory.ops->granularity(&memory, &device.granularity, error);
	if (r < 0)
		return r;
	device.total = total;
	device.free_known = nvml_free(device.id, &device.free);
	*ret = device;
	return 0;
}

/* Logs that a driver is there and fails. A machine without a driver is not worth a line. */
static void tell_unusable(const struct error *error)
{
	void *library = error->code == -ENODEV ? NULL : dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);

	if (!library)
		return;
	dlclose(library);
	loader_log("no GPU is used: %s (%s)", error->message, error->detail);
}

static int cuda_count(const struct cuda_driver **ret_cuda)
{
	struct error error;

	if (cuda_open(ret_cuda, &error) == 0)
		return (*ret_cuda)->device_count;
	tell_unusable(&error);
	return 0;
}

/* Lists the GPUs. One that can't be used is left out, and logged. */
static size_t cuda_devices(const struct cuda_driver *cuda, int count, struct device *devices)
{
	struct error error;
	size_t used = 0;

	for (int i = 0; i < count; i++) {
		if (cuda_device(cuda, i, &devices[used], &error) == 0)
			used++;
		else
			loader_log("GPU %d is not used: %s (%s)", i, error.message, error.detail);
	}
	return used;
}

#endif

int devices_list(struct device **ret_devices, size_t *ret_count, struct error *error)
{
	size_t count = 1;
#ifdef GPUWM_CUDA
	const struct cuda_driver *cuda = NULL;
	int cuda_devices_max = cuda_count(&cuda);
#else
	int cuda_devices_max = 0;
#endif
	struct device *devices = calloc((size_t)cuda_devices_max + 1, sizeof(*devices));
	int r;

	if (!devices)
		return error_set(error, -ENOMEM, NULL, "out of memory");
	r = host_device(&devices[0], error);
	if (r < 0) {
		free(devices);
		return r;
	}
#ifdef GPUWM_CUDA
	count += cuda_devices(cuda, cuda_devices_max, devices + 1);
#endif
	*ret_devices = devices;
	*ret_count = count;
	return 0;
}

int devices_find(struct devices_found *ret, struct error *error)
{
	struct devices_found found = {0};
	int r = devices_list(&found.devices, &found.count, error);

	if (r < 0)
		return r;
	found.told = calloc(found.count, sizeof(*found.told));
	if (!found.told) {
		free(found.devices);
		return error_set(error, -ENOMEM, NULL, "out of memory");
	}
	for (size_t i = 0; i < found.count; i++) {
		const struct device *device = &found.devices[i];

		found.told[i] = (struct device_found){.device = device->id,
						      .kind = device->kind,
						      .name = device->name,
						      .total = device->total,
						      .free = device->free_known ? &device->free : NULL,
						      .granularity = device->granularity,
						      .context = device->context};
	}
	*ret = found;
	return 0;
}

void devices_found_clear(struct devices_found *found)
{
	free(found->devices);
	free(found->told);
}
